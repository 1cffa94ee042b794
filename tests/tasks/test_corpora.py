"""The five corpora: the same documents from every place, everything wrong counted or refused, a cache that is whole."""

import dataclasses
import gzip
import json
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
    corpora._tell.cache_clear()
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "documents"


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def lines(*items):
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


def texts_of(task, split):
    source = task.source
    return [source.text(source.example(split, index, None)["targets"]) for index in range(source.size(split))]


def books(top, texts=TEXTS):
    for split, documents in texts.items():
        for name, text in documents.items():
            write(top / split / f"{name}.txt", text)
    return str(top)


def notes(task, split="train"):
    return {(what, reason): count for what, reason, count in task.source.facts(split)["notes"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    words = ["the", "whale", "is", "a", "lemma", "of", "große", "Tiere"]
    drawn = np.random.default_rng(0)
    texts = [" ".join(drawn.choice(words, 30)) + "\n  next line" for _ in range(60)]
    subwords.train(texts, 300, path, kind="bpe", lossless=True)
    return str(path)


# Places.


def test_books_as_files(tmp_path):
    write(tmp_path / "pg19/metadata.csv", "not a document")
    write(tmp_path / "pg19/train/.hidden.txt", "nor this")
    task = tasks.pg19(books(tmp_path / "pg19"), sample=True)
    for split in SPLITS:
        assert texts_of(task, split) == list(TEXTS[split].values())
    assert task.source.names("train") == ["a.txt", "b.txt", "c.txt"]
    facts = task.source.facts("train")
    size = sum(len(text.encode()) for text in TEXTS["train"].values())
    assert (facts["documents"], facts["tokens"], facts["bytes"], facts["notes"]) == (3, size, size, [])
    assert task.source.lengths("train").tolist() == [17, 28, 1]


def test_papers_are_folders_of_files_by_path(tmp_path):
    for split in SPLITS:
        write(tmp_path / split / "paper/main.tex", "main")
        write(tmp_path / split / "paper/b/part.tex", "part\n")
        write(tmp_path / split / "paper/a/part.tex", "\\begin{document}")
        write(tmp_path / split / "paper/style.sty", "left out")
        write(tmp_path / split / "single.tex", "alone")
    task = tasks.arxiv(str(tmp_path))
    assert texts_of(task, "train") == ["main\n\\begin{document}\npart\n", "alone"]


def test_repositories_are_lines_or_folders(tmp_path):
    files = [
        {"path": "z.py", "text": "z = 1"},
        {"path": "b/a.go", "text": "package b\n"},
        {"path": "README", "text": "x"},
    ]
    for split in SPLITS:
        write(tmp_path / split / "one.jsonl", lines(*files))
        write(tmp_path / split / "packed.jsonl.gz", gzip.compress(lines(*files[1:])))
        write(tmp_path / split / "tree/src/x.cc", "int x;\n")
        write(tmp_path / split / "tree/setup.cfg", "left out")
    assert texts_of(tasks.github(str(tmp_path)), "test") == ["z = 1\npackage b\n", "package b\n", "int x;\n"]


def test_proofs_stand_after_what_they_import(tmp_path):
    for split in SPLITS:
        write(tmp_path / split / "thys/ROOTS", "Entry")
        write(tmp_path / split / "thys/Entry/A.thy", 'theory A imports B "HOL-Library.Multiset" begin\nend\n')
        write(tmp_path / split / "thys/Entry/sub/B.thy", "theory B imports Main begin end\n")
    (text,) = texts_of(tasks.isabelle(str(tmp_path)), "train")
    assert text.startswith("theory B") and "theory A" in text


def test_pages_under_4096_tokens_are_left_out(tmp_path):
    pages = {"short": "s" * 4095, "just": "j" * 4096, "long": "l" * 9000}
    data = lines(*({"text": text, "url": f"http://{name}"} for name, text in pages.items()))
    write(
        tmp_path / "c4-train.00000-of-00002.json.gz",
        gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
    )
    write(tmp_path / "c4-train.00001-of-00002.json", lines({"text": "n" * 5000}))
    write(tmp_path / "c4-validation.00000-of-00001.json.gz", gzip.compress(data))
    task = tasks.c4_4k(str(tmp_path))
    assert task.source.names("train") == ["http://just", "http://long", "c4-train.00001-of-00002.json:1"]
    assert notes(task) == {("documents", "under 4096 tokens"): 1}
    assert task.source.lengths("test").tolist() == task.source.lengths("validation").tolist() == [4096, 9000]
    assert tasks.c4_4k(str(tmp_path), least=1).source.size("train") == 4
    assert tasks.c4_4k(str(tmp_path), least=1).name != task.name


def tfds_of(path, name, feature, features=()):
    pytest.importorskip("tensorflow_datasets")
    from tasks.registry import library

    library()
    import tensorflow_datasets as tfds

    kinds = {key: tfds.features.Text() for key in (feature, *features)}
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        features=tfds.features.FeaturesDict(kinds),
        split_datasets={
            split: [(key, {feature: text, **dict.fromkeys(features, key)}) for key, text in documents.items()]
            for split, documents in TEXTS.items()
        },
        data_dir=str(path),
        disable_shuffling=True,
    )
    return str(path)


@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, reading its own files
def test_tfds(tmp_path):
    task = tasks.pg19(tfds_of(tmp_path, "pg19", "book_text", ("book_title",)), sample=True)
    for split in SPLITS:
        assert texts_of(task, split) == list(TEXTS[split].values())
    assert task.source.names("train") == ["a", "b", "c"]
    assert task.name == tasks.pg19(books(tmp_path / "files"), sample=True).name
    pages = tasks.c4_4k(tfds_of(tmp_path / "c", "c4", "text"), least=2)
    assert texts_of(pages, "train") == [TEXTS["train"]["a"], TEXTS["train"]["b"]]


# What is wrong with texts.


def test_odd_files_are_read_or_counted(tmp_path, caplog):
    for split in SPLITS:
        write(tmp_path / split / "good.txt", "good")
    write(tmp_path / "train/bom.txt", b"\xef\xbb\xbfmark")
    write(tmp_path / "train/crlf.txt", b"one\r\ntwo\rthree\n")
    write(tmp_path / "train/latin.txt", "gr\xfcn".encode("latin-1"))
    write(tmp_path / "train/utf16.txt", "sechzehn".encode("utf-16"))
    write(tmp_path / "train/nul.txt", b"a\0b")
    write(tmp_path / "train/empty.txt", b"")
    write(tmp_path / "train/space.txt", b" \n\t\n")
    write(tmp_path / "train/long.txt", "x" * 300_000)
    task = tasks.pg19(str(tmp_path), sample=True)
    found = dict(zip(task.source.names("train"), texts_of(task, "train"), strict=True))
    assert found.pop("long.txt") == "x" * 300_000
    assert found == {
        "bom.txt": "mark",
        "crlf.txt": "one\ntwo\nthree\n",
        "good.txt": "good",
        "latin.txt": "grün",
        "utf16.txt": "sechzehn",
    }
    assert notes(task) == {
        ("documents", "empty"): 3,
        ("files", "with NUL bytes"): 1,
        ("files", "read as Latin-1"): 1,
    }
    tasks.pg19(str(tmp_path), sample=True)
    (line,) = caplog.messages  # once, though two tasks were built
    assert line.endswith("3 documents empty, 1 file with NUL bytes left out; 1 file read as Latin-1")


def test_odd_lines_are_counted(tmp_path):
    for split in SPLITS[1:]:
        write(tmp_path / split / "r.jsonl", lines({"path": "a.py", "text": "a"}))
    bad = [
        b"",
        b'{"path": "cut.py", "text": "cut',
        b'{"path": "latin.py", "text": "\xe9"}',
        b"[" * 100_000,
        [1, 2],
        {"path": "nul.py", "text": "a\0b"},
        {"path": "half.py", "text": "\ud800"},
        {"path": "none.py", "text": None},
        {"path": "missing.py"},
        {"text": "no path"},
        {"path": "../outside.py", "text": "x"},
        {"path": "/outside.py", "text": "x"},
        {"path": "a.py", "text": "again"},
        {"path": "picture.bin", "text": "\0"},
    ]
    good = [{"path": "a.py", "text": "first\r\n"}, {"path": "z.py", "text": "line\u2028separator\x85"}]
    write(tmp_path / "train/r.jsonl", lines(good[0], *bad) + json.dumps(good[1]).encode())
    task = tasks.github(str(tmp_path))
    assert texts_of(task, "train") == ["first\nline\u2028separator\x85"]
    assert {reason: count for (_, reason), count in notes(task).items()} == {
        "blank": 1,
        "not JSON": 2,
        "not UTF-8": 1,
        "without text": 3,
        "with NUL bytes": 1,
        "with half a surrogate pair": 1,
        "without a path": 1,
        "outside the project": 2,
        "under a path seen before": 1,
    }


def test_damaged_archives_are_refused(tmp_path):
    packed = gzip.compress(lines({"text": "t" * 5000}))
    write(tmp_path / "c4-validation.00000-of-00001.json.gz", packed)
    train = tmp_path / "c4-train.00000-of-00001.json.gz"
    for data, message in (
        (packed[:-12], "is damaged"),
        (b"plain", "is damaged"),
        (packed[:10] + b"\xff" * 20, "is damaged"),
        (b"", "is empty"),
        (gzip.compress(b""), "no document to use in train$"),
        (
            gzip.compress(lines({"text": "short"})),
            r"no document to use in train \(1 document under 4096 tokens left out\)",
        ),
    ):
        write(train, data)
        with pytest.raises(tasks.DataError, match=message) as error:
            tasks.c4_4k(str(tmp_path))
        assert "\n" not in str(error.value)
    train.rename(tmp_path / "c4-train.00000-of-01024.json.gz")
    with pytest.raises(tasks.DataError, match="1 train shards .* their names say 1024"):
        tasks.c4_4k(str(tmp_path))


def test_places_that_hold_nothing_say_what_is_wanted(tmp_path):
    place = books(tmp_path / "corpus")
    write(tmp_path / "partial/train/a.txt", "a")
    cases = {
        str(tmp_path / "nowhere"): "pg19: no directory at",
        f"{place}/train/a.txt": "is a file; give the directory",
        f"{place}/train": "did you mean .*/corpus?",
        str(tmp_path): "pg19: nothing to read in .*TFDS dataset called pg19",
        str(tmp_path / "partial"): "lacks validation/, test/",
    }
    for path, message in cases.items():
        with pytest.raises(tasks.DataError, match=message) as error:
            tasks.pg19(path, sample=True)
        assert "\n" not in str(error.value)
    with pytest.raises(tasks.DataError, match="no document to use in train"):
        tasks.arxiv(place)


def test_pg19_is_counted(tmp_path, monkeypatch):
    place = books(tmp_path / "pg19")
    with pytest.raises(tasks.DataError, match="has 3 / 1 / 2 books .* PG-19 has 28,602 / 50 / 100"):
        tasks.pg19(place)
    monkeypatch.setattr(corpora, "BOOKS", {"train": 3, "validation": 1, "test": 2})
    assert tasks.pg19(place).name == tasks.pg19(place, sample=True).name


# The cache.


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


# Tasks.


@pytest.mark.parametrize("build", BUILDERS)
def test_without_data_a_task_knows_its_shapes(build):
    task = build(vocabulary=32000, length=2048)
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
        ({"vocabulary": 32000, "sample": True}, "vocabulary of 32000 ids was asked for by number"),
        ({"vocabulary": None}, "vocabulary .* must be a whole number from 2"),
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

    monkeypatch.setattr(corpora, "codec", lambda vocabulary: Wrong())
    with pytest.raises(tasks.DataError, match="a.txt: ids .* the vocabulary has 100"):
        tasks.pg19(books(tmp_path / "pg19"), sample=True)


def test_a_vocabulary_is_trained_on_the_training_split(tmp_path):
    texts = corpora.TrainingTexts("pg19", books(tmp_path / "pg19"))
    assert list(texts) == list(texts) == list(TEXTS["train"].values())


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
    text = (Path(__file__).parents[2] / f"configs/tasks/{build.__name__}.gin").read_text()
    gin.clear_config()
    gin.parse_config(text + "\nLENGTH = 64\nPREDICT_FIRST = False")
    built = gin.get_configurable(f"tasks.{build.__name__}")()
    gin.clear_config()
    assert built == build(vocabulary=32000, length=64, predict_first=False)
