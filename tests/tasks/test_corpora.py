"""The five corpora as tasks: names, vocabularies, metrics, and a cache that is there whole or not at all."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import tasks
from tasks import corpora, subwords, tokenised

SPLITS = ("train", "validation", "test")
TEXTS = {
    "train": {"a": "Call me Ishmael.\n", "b": "größer 東京\n  two spaces", "c": "x"},
    "validation": {"d": "validation\n" * 3},
    "test": {"e": "the test", "f": "another\n\n"},
}
BUILDERS = (tasks.arxiv, tasks.pg19, tasks.c4_4k, tasks.github, tasks.isabelle)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "documents"


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def texts_of(task, split):
    source = task.source
    return [source.text(source.example(split, index, None)["targets"]) for index in range(source.size(split))]


def books(top, texts=TEXTS):
    for split, documents in texts.items():
        for name, text in documents.items():
            write(top / split / f"{name}.txt", text)
    return str(top)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    words = ["the", "whale", "is", "a", "lemma", "of", "große", "Tiere"]
    drawn = np.random.default_rng(0)
    texts = [" ".join(drawn.choice(words, 30)) + "\n  next line" for _ in range(60)]
    subwords.train(texts, 300, path, kind="bpe", lossless=True)
    return str(path)


def test_pg19_is_counted(tmp_path, monkeypatch):
    place = books(tmp_path / "pg19")
    with pytest.raises(tasks.DataError, match="has 3 / 1 / 2 books .* PG-19 has 28,602 / 50 / 100"):
        tasks.pg19(place)
    monkeypatch.setattr(corpora, "BOOKS", {"train": 3, "validation": 1, "test": 2})
    assert tasks.pg19(place).name == tasks.pg19(place, sample=True).name


def test_texts_are_read_once(tmp_path, monkeypatch, cache):
    place = books(tmp_path / "pg19")
    task = tasks.pg19(place, sample=True)
    assert len(list(cache.iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr(tokenised, "tokenise", None)  # reading again would fail
        again = tasks.pg19(place, length=64, sample=True)
    assert texts_of(again, "train") == texts_of(task, "train")
    write(tmp_path / "pg19/train/a.txt", "changed")
    changed = tasks.pg19(place, sample=True)
    assert texts_of(changed, "train")[0] == "changed" and len(list(cache.iterdir())) == 2
    assert changed.name != task.name and changed.fingerprint() != task.fingerprint()


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch, cache):
    place = books(tmp_path / "pg19")
    tokenise = tokenised.tokenise

    def fail_at_last(texts, split, *rest):
        if split == "test":
            raise KeyboardInterrupt
        return tokenise(texts, split, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(tokenised, "tokenise", fail_at_last)
        with pytest.raises(KeyboardInterrupt):
            tasks.pg19(place, sample=True)
    assert list(cache.iterdir()) == []
    assert texts_of(tasks.pg19(place, sample=True), "test") == list(TEXTS["test"].values())


@pytest.mark.parametrize("damage", ["short", "facts", "lost"])
def test_a_damaged_cache_is_made_again(tmp_path, cache, damage):
    place = books(tmp_path / "pg19")
    tasks.pg19(place, sample=True)
    (folder,) = cache.iterdir()
    if damage == "short":
        write(folder / "train.ids", (folder / "train.ids").read_bytes()[:-1])
    elif damage == "facts":
        write(folder / "facts.json", "{")
    else:
        (folder / "test.bounds").unlink()
    assert texts_of(tasks.pg19(place, sample=True), "train") == list(TEXTS["train"].values())


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    place = books(tmp_path / "pg19")
    write(tmp_path / "file", "in the way")
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "file"))
    with pytest.raises(tasks.DataError, match="pg19: .*set REPRO_CACHE to another folder") as error:
        tasks.pg19(place, sample=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("build", BUILDERS)
def test_without_data_a_task_knows_its_shapes(build):
    task = build(vocabulary=None, ids=32000, length=2048)
    assert (task.length, task.vocabulary) == (2048, 32000)
    assert task.name == f"{build.__name__}.ids32000.length2048"
    assert task.specimen(2)["decoder_target_tokens"].shape == (2, 2048)
    for ask in (task.fingerprint, lambda: task.feed("train", 2)):
        with pytest.raises(tasks.DataError, match=f"{build.__name__}: no path to the data was given"):
            ask()


def test_settings_are_part_of_the_name(tmp_path, model):
    place = books(tmp_path / "pg19")
    usual = {"path": place, "sample": True}
    variants = [usual, usual | {"length": 8}, usual | {"predict_first": False}, usual | {"vocabulary": model}]
    built = [tasks.pg19(**variant) for variant in variants]
    assert len({task.name for task in built}) == len({task.fingerprint() for task in built}) == 4
    assert built[0].name.startswith("pg19.bytes.data_") and built[3].name.startswith("pg19.sp300_")
    assert tasks.pg19(books(tmp_path / "copy"), sample=True).fingerprint() == built[0].fingerprint()


def test_settings_that_mean_nothing_are_one_line(tmp_path):
    place = books(tmp_path / "pg19")
    write(tmp_path / "broken.model", "no model")
    for settings, message in (
        ({"vocabulary": "byte"}, "pg19: no vocabulary at 'byte': it must be 'bytes' or"),
        ({"vocabulary": str(tmp_path / "broken.model")}, "is no SentencePiece model"),
        ({"vocabulary": 32000}, "no vocabulary at 32000"),
        ({"ids": 300}, "vocabulary bytes has 258 ids, `ids` says 300; set ids=258"),
        ({"vocabulary": None, "ids": 1}, "ids must be a whole number from 2"),
        ({"vocabulary": None}, "pg19: no vocabulary was given; .*`ids` alone"),
        ({"length": 0}, "pg19: length must be a whole number from 1"),
        ({"length": 1, "predict_first": False}, "pg19: length must be a whole number from 2"),
    ):
        with pytest.raises(tasks.DataError, match=message) as error:
            tasks.pg19(place, **settings)
        assert "\n" not in str(error.value)


def test_pieces_give_every_byte_back_and_count_bits_over_bytes(tmp_path, model):
    place = books(tmp_path / "pg19")
    pieces, plain = (tasks.pg19(place, vocabulary=one, sample=True) for one in (model, "bytes"))
    assert pieces.vocabulary == 300 and plain.vocabulary == 258
    for split in SPLITS:
        assert texts_of(pieces, split) == texts_of(plain, split) == list(TEXTS[split].values())
    assert [metric.name for metric in pieces.metrics] == [metric.name for metric in plain.metrics]
    assert pieces.metrics[0].name == "perplexity_per_token"
    # A model that spends 7 nats on each token of the split, whatever the vocabulary.
    for task in (pieces, plain):
        tokens = sum(batch["decoder_loss_weights"].sum() for batch in task.feed("test", 3))
        sums = task.totals("test", {"nats": 7.0 * tokens, "correct": 0.0, "weights": float(tokens)})
        values = {metric.name: metric.compute(sums) for metric in task.metrics}
        size = sum(len(text.encode()) for text in TEXTS["test"].values())
        assert values["bits_per_byte"] == pytest.approx(7.0 * tokens / math.log(2) / size, rel=1e-12)
        assert values["nats_per_token"] == 7.0 and values["perplexity_per_token"] == pytest.approx(math.exp(7))


def test_ids_of_another_vocabulary_are_refused(tmp_path, monkeypatch):
    class Wrong(corpora.codec("bytes").__class__):
        size = 100

    monkeypatch.setattr(corpora, "codec", lambda vocabulary, ids: Wrong())
    with pytest.raises(tasks.DataError, match="a.txt: ids .* the vocabulary has 100"):
        tasks.pg19(books(tmp_path / "pg19"), sample=True)


def test_a_vocabulary_is_made_of_the_training_split(tmp_path, capsys):
    from launch.cli import main

    place = books(
        tmp_path / "pg19", {**TEXTS, "train": {str(n): f"word {n} and word {n + 1}\n" * 9 for n in range(40)}}
    )
    unmade = tasks.pg19(place, vocabulary=None, ids=300)
    assert len(list(unmade.texts("train"))) == 40
    for ask in (unmade.fingerprint, lambda: unmade.feed("train", 2)):
        with pytest.raises(tasks.DataError, match="pg19: no vocabulary was given; .*`repro data vocab`"):
            ask()
    out = str(tmp_path / "words.model")
    words = ["data", "vocab", "--task", "pg19", "--out", out, "--size", "300", "--kind", "bpe", "--lossless"]
    assert main([*words, "--set", f"DATA = {place!r}"]) == 0
    assert "40 of 40 texts" in capsys.readouterr().out
    task = tasks.pg19(place, vocabulary=out, ids=300, sample=True)
    assert sorted(texts_of(task, "train")) == sorted(unmade.texts("train"))


def test_segments_of_real_text_are_the_documents(tmp_path):
    task = dataclasses.replace(tasks.pg19(books(tmp_path / "pg19"), sample=True), length=7)
    found = {}
    for batch in task.feed("train", 2, seed=1):
        for row in range(2):
            if batch["document_start"][row]:
                found[row] = []
                done = found.setdefault("all", [])
                done.append(found[row])
            found[row].append(batch["decoder_target_tokens"][row][batch["decoder_segment_ids"][row] == 1])
        if len(found["all"]) > 5:
            break
    whole = [task.source.text(np.concatenate(parts)) for parts in found["all"][:3]]
    assert sorted(whole) == sorted(TEXTS["train"].values())


@pytest.mark.parametrize("build", BUILDERS)
def test_the_gin_file_builds_the_task(build):
    import gin

    from launch import config  # registers the names

    assert f"tasks.{build.__name__}" in config.NAMES
    folder = Path(__file__).parents[2] / "configs"
    gin.clear_config()
    for name in (f"tasks/{build.__name__}.gin", "memorizing/segments.gin"):
        gin.parse_config((folder / name).read_text())
    gin.parse_config("LENGTH = 64\nPREDICT_FIRST = False")
    built = gin.get_configurable(f"tasks.{build.__name__}")()
    gin.clear_config()
    assert built == build(vocabulary=None, ids=32000, length=64, predict_first=False)
