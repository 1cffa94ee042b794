"""Texts: the same documents from every place, and everything wrong counted or refused."""

import gzip
import json

import pytest

import tasks
from tasks import logs

SPLITS = ("train", "validation", "test")
TEXTS = {
    "train": {"a": "Call me Ishmael.\n", "b": "größer 東京\n  two spaces", "c": "x"},
    "validation": {"d": "validation\n" * 3},
    "test": {"e": "the test", "f": "another\n\n"},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    logs.say_once.cache_clear()
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


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
