"""`repro data vocab`: one command makes the vocabulary that a task then reads."""

import json

import pytest

import tasks
from launch.cli import main

NAMES = {"train": "corpus", "validation": "dev", "test": "news"}


@pytest.fixture
def place(tmp_path):
    for split, stem in NAMES.items():
        for side, word in (("en", "house"), ("de", "größer")):
            (tmp_path / f"{stem}.{side}").write_text("".join(f"{word} {split} {n}\n" for n in range(20)))
    return tmp_path


def command(place, out, size=300, task="wmt14"):
    chosen = {"DATA": str(place), "SAMPLE": True, **{split.upper(): stem for split, stem in NAMES.items()}}
    sets = [word for name, value in chosen.items() for word in ("--set", f"{name} = {value!r}")]
    return ["data", "vocab", "--task", task, "--out", str(out), "--size", str(size), "--kind", "bpe", *sets]


def test_a_vocabulary_of_the_training_texts_alone(place, capsys):
    out = place / "words.model"
    assert main(command(place, out)) == 0
    assert "words.model: 300 ids (bpe) from 40 of 40 texts" in capsys.readouterr().out
    facts = json.loads((place / "words.model.json").read_text())
    task = tasks.wmt14(str(place), str(out), ids=300, sample=True, **NAMES)
    assert task.subwords.sha256 == facts["sha256"]
    assert facts["bytes_used"] == sum(len((place / f"corpus.{side}").read_bytes()) - 20 for side in ("en", "de"))
    assert task.decode(task.encode("größer house")) == "größer house"


def test_what_cannot_be_made_is_one_line(place, capsys):
    for words, status, message in (
        (command(place, place / "f", size=9), 1, "size of the vocabulary must be a whole number from 300"),
        (command(place, place / "f", size=5000), 1, "no vocabulary of 5000 pieces can be made"),
        (command(place / "nowhere", place / "f"), 1, "wmt14: no directory at"),
        (command(place, place / "corpus.en" / "f"), 1, "cannot write the vocabulary"),
        (command(place, place / "f", task="wmt"), 2, "no task is called 'wmt'; did you mean 'wmt14'?"),
        (["data", "vocab", "--task", "duplication", "--out", "f"], 2, "has no texts to make a vocabulary of"),
    ):
        assert main(words) == status
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (place / "f").exists()
