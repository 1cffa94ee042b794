"""`repro sample`: a run's newest checkpoint goes on with text, completes pictures, and says what it lacks."""

import dataclasses
import re

import jax
import numpy as np
import pytest
from PIL import Image

from launch import composition as files
from launch import config, sample, train
from launch.cli import main

BYTES = ["reformer/enwik8/layers12_20k", "--scale", "tiny", "--set", "LAYERS = 1", "--set", "LENGTH = 64"]
PICTURES = ["reformer/imagenet64/layers6", "--scale", "tiny", "--set", "LAYERS = 1", "--set", "LENGTH = 48",
            "--set", "GRID = (4, 4, 3)"]  # fmt: skip
NUMBERS = ["reformer/table2/lsh2", "--scale", "tiny"]
WORDS = ["reformer/acceptance/copyreverse", "--scale", "tiny"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder that is both tasks' data: three texts, and pictures whose lower half is their upper half, brighter."""
    folder, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("train", "valid", "test"):
        folder.joinpath(f"{name}.txt").write_text(f"{name}: grün ist alle Theorie. " * 40)
    for name, count in (("train", 24), ("valid", 3)):
        upper = draw.integers(0, 128, (count, 32, 64, 3), np.uint8)
        np.save(folder / f"{name}_64x64.npy", np.concatenate([upper, upper + 100], axis=1))
    return folder


@pytest.fixture
def untrained(monkeypatch, tmp_path):
    """Runs that seem to have a checkpoint: start values, at step 7."""

    def restore(experiment, folder):
        return 7, experiment.model.init(jax.random.key(experiment.seed), None)

    monkeypatch.setattr(train, "restore_params", restore)

    def arguments(words, data):
        words = [*words, "--workdir", str(tmp_path)]
        if words[0] not in (NUMBERS[0], WORDS[0]):
            words += ["--set", f"DATA = '{data}'"]
        overrides = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        job = files.compose(words[0], "tiny", None, overrides)
        (tmp_path / job.run_name / "checkpoints" / "7").mkdir(parents=True, exist_ok=True)
        return ["sample", *words]

    return arguments


def test_text_goes_on_after_its_prompt_and_is_drawn_again_alike(untrained, data, capsys):
    words = [*untrained(BYTES, data), "--prompt", "Grün", "--tokens", "20", "--count", "3", "--top-k", "50"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert "step 7" in first
    assert "--- prompt, 5 tokens\nGrün\n" in first
    parts = re.split(r"--- continuation \d, 20 tokens\n", first)[1:]
    assert len(parts) == len(set(parts)) == 3
    assert main(words) == 0
    assert capsys.readouterr().out == first
    assert main([*words, "--draw", "1"]) == 0
    assert capsys.readouterr().out != first


def test_without_a_prompt_the_test_split_begins(untrained, data, capsys, tmp_path):
    words = untrained(BYTES, data)
    assert main([*words, "--tokens", "20", "--examples", "0"]) == 0
    assert "--- test example 0, 32 tokens\ntest: grün ist alle Theorie. te\n" in capsys.readouterr().out
    (tmp_path / "prompt").write_text("ü")
    assert main([*words, "--tokens", "20", "--prompt-file", str(tmp_path / "prompt"), "--rounds", "1"]) == 0
    assert "--- prompt, 2 tokens\nü\n" in capsys.readouterr().out


def test_control_characters_do_not_reach_the_terminal():
    assert sample.printable("a\x1b[2J\x00\x9bb\tc\nd ü\u2028") == "a\ufffd[2J\ufffd\ufffdb\tc\nd ü\u2028"


def test_ids_without_text_are_numbers(untrained, data, capsys):
    assert main([*untrained(NUMBERS, data), "--prompt", "0 5 6 0", "--tokens", "3", "--temperature", "0"]) == 0
    out = capsys.readouterr().out
    assert "--- prompt, 4 tokens\n0 5 6 0\n" in out
    assert re.search(r"--- continuation 0, 3 tokens\n\d+ \d+ \d+\n", out)


def test_pictures_keep_their_upper_half(untrained, data, capsys, tmp_path):
    words = [*untrained(PICTURES, data), "--examples", "1,2", "--count", "2", "--out", str(tmp_path / "made")]
    assert main(words) == 0
    assert "original, given, 2 completions" in capsys.readouterr().out
    (path,) = (tmp_path / "made").iterdir()
    assert path.name == "step7-pictures1_2-draw0.png"
    pixels = np.asarray(Image.open(path).convert("RGB"))
    side = 128 + 2 * 2
    assert pixels.shape == (2 * side, 4 * side, 3)
    task = config.build(files.compose(PICTURES[0], "tiny", None, [*PICTURES[4::2], f"DATA = '{data}'"])).task
    for row, number in enumerate((1, 2)):
        original = task.source.picture(task.source.example("test", number, None)["targets"])
        cells = pixels.reshape(2, side, 4, side, 3)[row].swapaxes(0, 1)[:, 2:-2:32, 2:-2:32]
        np.testing.assert_array_equal(cells[0], original)
        for cell in cells[1:]:
            np.testing.assert_array_equal(cell[:2], original[:2])
        assert (cells[1, 2:] == sample.GREY).all()
        assert (cells[2, 2:] != cells[3, 2:]).any()


def test_examples_are_completed_by_chances_of_their_own(untrained, data, capsys, tmp_path):
    """At a high temperature chance alone decides."""
    words = [
        *untrained(PICTURES, data),
        "--examples",
        "1,2",
        "--count",
        "1",
        "--temperature",
        "1e6",
        "--out",
        str(tmp_path / "made"),
    ]
    assert main(words) == 0
    (path,) = (tmp_path / "made").iterdir()
    side = 128 + 2 * 2
    cells = np.asarray(Image.open(path).convert("RGB")).reshape(2, side, 3, side, 3)[:, 2:-2:32, 2][:, 2:, 2:-2:32]
    assert (cells[0] != cells[1]).mean() > 0.9


def test_translations_are_of_the_sentences_asked_for(untrained, data, capsys):
    pairs = config.build(files.compose(WORDS[0], "tiny")).task.references("test")
    for words, numbers in (
        (["--examples", "4,1"], [4, 1]),
        (["--examples", "2", "--count", "2"], [2, 3]),
        (["--examples", "3"], [3, 4, 5]),  # as many as there are
    ):
        assert main([*untrained(WORDS, data), *words]) == 0
        out = capsys.readouterr().out
        assert re.findall(r"source       (.*)\n", out) == [pairs[number][0] for number in numbers]
        assert re.findall(r"reference    (.*)\n", out) == [pairs[number][1] for number in numbers]
    for words, message in (
        (["--temperature", "0"], "--temperature: translations come from beam search and are printed; leave it away"),
        (["--top-k", "3"], "--top-k: translations"),
        (["--draw", "3"], "--draw: translations"),
        (["--out", "x"], "--out: translations"),
        (["--prompt", "1 2", "--count", "3"], "--count: each line of a prompt has one translation"),
        (["--prompt", " "], "there is no sentence to translate"),
        (["--examples", "0,6"], "--examples: there is no 6; the test split has 6, from 0"),
        (["--prompt", "1 b"], "sentences are numbers"),
    ):
        assert main([*untrained(WORDS, data), *words]) in (1, 2)
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "x", "--tokens", "64"], "1 tokens and 64 more are 1 more than the model's 64 positions"),
        (["--top-p", "0"], "top_p is 0.0"),
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--examples", "99"], "there is no 99; the test split has"),
        (["--prompt-file", "/nowhere"], "/nowhere: No such file"),
        (["--prompt", "a\udcff"], r"b'a\xff' is not UTF-8"),
        (["--out", "x"], "--out: this task's samples are printed"),
    ],
)
def test_what_cannot_be_is_one_line(untrained, data, capsys, words, message):
    assert main([*untrained(BYTES, data), *words]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_other_things_that_cannot_be(untrained, data, capsys):
    assert main([*untrained(NUMBERS, data), "--prompt", "a b"]) == 2
    assert "must be ids" in capsys.readouterr().err
    assert main([*untrained(NUMBERS, data), "--prompt", "0 128"]) == 2
    assert "ids go from 0 to 127" in capsys.readouterr().err
    assert main([*untrained(PICTURES, data), "--prompt", "a cat"]) == 2
    assert "--examples" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["sample", *BYTES, "--tokens", "0"])
    assert "whole numbers from 1" in capsys.readouterr().err


def test_without_a_checkpoint_the_command_that_makes_one_is_told(capsys, tmp_path):
    assert main(["sample", *BYTES, "--seed", "3", "--workdir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "repro run reformer/enwik8/layers12_20k --scale tiny --seed 3 --set 'LAYERS = 1'" in error
    assert main(["sample", "reformer/table2", "--workdir", str(tmp_path)]) == 2
    assert "one run at a time; reformer/table2 and --seed name 4" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_trained_and_writes(data, capsys, tmp_path):
    words = [*BYTES, "--workdir", str(tmp_path), "--set", f"DATA = '{data}'"]
    assert main(["run", *words, "--records", str(tmp_path / "records")]) == 0
    assert main(["sample", *words, "--prompt", "a", "--tokens", "20"]) == 0
    assert ", step 4\n--- prompt, 1 tokens\na\n--- continuation 0, 20 tokens\n" in capsys.readouterr().out


def test_rounds_change_lsh_attention_and_nothing_else():
    model = config.build(files.compose("reformer/enwik8/layers12_tuned", "tiny", None, [])).model
    changed = sample._with_rounds(model, 8)
    kinds = [type(setting).__name__ for setting in model.pattern]
    assert "LSH" in kinds
    assert [type(setting).__name__ for setting in changed.pattern] == kinds
    assert {s.rounds for s in changed.pattern if hasattr(s, "rounds")} == {8}
    assert dataclasses.replace(changed, attention=model.attention) == model
