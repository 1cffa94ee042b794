"""PG-19 and C4 from their published layouts and from TFDS's record files."""

import gzip
import json
from collections import Counter

import pytest
from build_stand_ins import read, wrote

from tasks import subwords
from tasks.build import pg19, records
from tasks.build.c4 import C4
from tasks.build.pg19 import PG19
from tasks.task import DataError

SAMPLE = PG19(sample=True)


def prepared(top, name, split, examples, integers=b""):
    """A record file as TFDS writes it, beside the file by which TFDS's directories are known."""
    (top / name).mkdir(parents=True, exist_ok=True)
    (top / name / "dataset_info.json").write_text("{}")
    dataset = name.split("/")[0]
    with (top / name / f"{dataset}-{split}.tfrecord-00000-of-00001").open("wb") as file:
        for example in examples:
            features = records.example({key: value.encode() for key, value in example.items()})
            # Another entry of the Features, which are field 1: the length before them grows by as much.
            records.write(file, b"\n" + bytes(varint(len(body(features)) + len(integers))) + body(features) + integers)
    return top


def varint(number):
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number


def body(message):
    """The contents of a message's one field."""
    at = 1
    while message[at] > 127:
        at += 1
    return message[at + 1 :]


BOOKS = {
    "train/1.txt": "The first\r\nbook",
    "train/2.txt": "caf\xe9".encode("latin-1"),
    "train/3.txt": "a\0b",
    "validation/4.txt": "\ufeffFourth",
    "test/5.txt": "Fifth",
    "metadata.csv": '1,"One, a title",1900,http://example.org/1\n5,Five\n',
}


def test_books_keep_their_split_and_have_their_address(tmp_path):
    documents, notes = read(SAMPLE, wrote(tmp_path, {**BOOKS, "nasty/6.txt": "Sixth", "README": "x"}))
    assert [(one.name, one.text, one.split, one.source) for one in documents] == [
        ("test/5", "Fifth", "test", "test/5.txt"),
        ("train/1", "The first\nbook", "train", "http://example.org/1"),
        ("train/2", "café", "train", "train/2.txt"),
        ("validation/4", "Fourth", "validation", "validation/4.txt"),
    ]
    told = {("books", "read as Latin-1"): 1, ("books", "with NUL bytes"): 1}
    assert notes == told | {("entries", "beside train, validation, test"): 2}


def test_numbers_of_books_are_those_of_pg19_but_for_a_sample(tmp_path, monkeypatch):
    wrote(tmp_path, BOOKS)
    with pytest.raises(DataError, match="has 3 / 1 / 1 books .* where PG-19 has 28,602 / 50 / 100"):
        PG19().units(str(tmp_path), Counter())
    monkeypatch.setattr(pg19, "BOOKS", {"train": 3, "validation": 1, "test": 1})
    assert len(PG19().units(str(tmp_path), Counter())) == 5
    with pytest.raises(DataError, match="has only train of train, validation, test"):
        SAMPLE.units(str(wrote(tmp_path / "part", {"train/1.txt": "x"})), Counter())
    with pytest.raises(DataError, match=r"has 0 / 0 / 0 books"):
        SAMPLE.units(str(wrote(tmp_path / "none", {"a.md": "x"})), Counter())
    with pytest.raises(DataError, match="no directory at"):
        SAMPLE.units(str(tmp_path / "gone"), Counter())


def test_books_that_are_not_split_are_a_sample(tmp_path):
    documents, notes = read(SAMPLE, wrote(tmp_path, {"a.txt": "A", "b/c.txt": "C", "b/d.pdf": "%PDF", "e.txt": " \n"}))
    assert [(one.name, one.split) for one in documents] == [("a", ""), ("b/c", "")]
    assert notes == {("files", "beside the books"): 1, ("books", "empty"): 1}


# An entry of Features as TFDS writes one: book_id (1) is (2) a Feature whose Int64List (3) holds (1) the number 7.
BOOK_ID = bytes([10, 16, 10, 7]) + b"book_id" + bytes([18, 5, 26, 3, 10, 1, 7])


def test_books_of_tfds(tmp_path):
    for split, number in (("train", 7), ("validation", 8), ("test", 9)):
        book = {"book_text": f"Book {number}", "book_title": "T", "book_link": f"http://example.org/ebooks/{number}"}
        prepared(tmp_path, "pg19/0.1.1", split, [book], BOOK_ID)
    documents, notes = read(PG19(), tmp_path)
    assert [(one.name, one.text, one.split) for one in documents] == [
        ("test/9", "Book 9", "test"),
        ("train/7", "Book 7", "train"),
        ("validation/8", "Book 8", "validation"),
    ]
    assert not notes
    file = tmp_path / "pg19/0.1.1/pg19-train.tfrecord-00000-of-00001"
    file.write_bytes(file.read_bytes()[:-1])
    documents, notes = read(PG19(), tmp_path)
    assert len(documents) == 2 and notes == {("record files", "kept up to where they are damaged"): 1}


def pages(*texts):
    return b"".join(
        json.dumps({"text": text, "url": f"http://example.org/{number}", "timestamp": ""}).encode() + b"\n"
        for number, text in enumerate(texts)
    )


LONG, SHORT = "längere Seite", "Seite"


def shards(top, **more):
    files = {
        "c4-train.00000-of-00002.json.gz": gzip.compress(pages(LONG, SHORT)),
        "c4-train.00001-of-00002.json.gz": gzip.compress(pages(SHORT, LONG + "\r\n") + b"{\n\n"),
        "c4-validation.00000-of-00001.json.gz": gzip.compress(pages(LONG)),
    }
    return wrote(top, files | more)


def test_pages_under_so_many_tokens_are_left_out(tmp_path):
    documents, notes = read(C4(least=14), shards(tmp_path, **{"README.md": b""}))
    assert [(one.name, one.text, one.split, one.source) for one in documents] == [
        ("c4-train.00000-of-00002.json.gz:1", LONG, "train", "http://example.org/0"),
        ("c4-train.00001-of-00002.json.gz:2", LONG + "\n", "train", "http://example.org/1"),
        ("c4-validation.00000-of-00001.json.gz:1", LONG, "validation", "http://example.org/0"),
    ]
    told = {("documents", "under 14 tokens"): 2, ("documents", "not JSON"): 1, ("documents", "blank"): 1}
    assert notes == told | {("files", "beside C4's own"): 1}
    assert len(read(C4(least=15), tmp_path)[0]) == 1, "ä is two bytes, and LF is one"


def test_pages_are_measured_in_the_vocabulary_in_use(tmp_path):
    model, page = str(tmp_path / "words.model"), "the quick brown fox and the lazy dog"
    letters = (f"{first}{second}{third}" for first in "abcdefgh" for second in "ijklmn" for third in "opqrst")
    subwords.train([page, *letters] * 5, 300, model)
    length = len(subwords.load(model).encode([page])[0])
    assert length < len(page)
    shards(tmp_path / "c4", **{"c4-validation.00000-of-00001.json.gz": gzip.compress(pages(page))})
    for least in (length, length + 1):
        documents, _ = read(C4(vocabulary=model, least=least), tmp_path / "c4")
        assert (page in [one.text for one in documents]) == (least == length)
    with pytest.raises(DataError, match="no vocabulary at"):
        C4(vocabulary=str(tmp_path / "gone")).units(str(tmp_path / "c4"), Counter())


def test_files_of_c4_must_be_complete_but_for_a_sample(tmp_path):
    shards(tmp_path)
    (tmp_path / "c4-train.00001-of-00002.json.gz").unlink()
    with pytest.raises(DataError, match="has 1 train files where their names say 2"):
        C4().units(str(tmp_path), Counter())
    assert len(C4(sample=True).units(str(tmp_path), Counter())) == 2
    other = wrote(tmp_path / "other", {"pages.jsonl": pages(LONG)})
    with pytest.raises(DataError, match="has 0 train files where their names say nothing"):
        C4().units(str(other), Counter())
    ((document,), _) = read(C4(sample=True, least=1), other)
    assert (document.name, document.split) == ("pages.jsonl:1", "")
    with pytest.raises(DataError, match="least"):
        C4(least=0)


def test_damaged_files_of_pages_are_read_as_far_as_they_go(tmp_path):
    whole = gzip.compress(pages(*(LONG + str(number) for number in range(3000))))
    wrote(tmp_path, {"cut.json.gz": whole[: len(whole) // 2], "empty.json.gz": gzip.compress(b""), "none.json.gz": b""})
    documents, notes = read(C4(sample=True, least=1), tmp_path)
    assert [one.text for one in documents] == [LONG + str(number) for number in range(len(documents))]
    assert 500 < len(documents) < 3000
    assert notes == {("archives", "kept up to where they are damaged"): 1, ("files", "empty"): 2}


def test_pages_of_tfds(tmp_path):
    page = {"text": LONG, "url": "http://example.org/a", "timestamp": ""}
    prepared(tmp_path, "c4/en/3.0.1", "train", [page, {**page, "text": SHORT}])
    prepared(tmp_path, "c4/en/3.0.1", "validation", [page])
    documents, notes = read(C4(least=14), tmp_path)
    assert [(one.text, one.split, one.source) for one in documents] == [
        (LONG, "train", page["url"]),
        (LONG, "validation", page["url"]),
    ]
    assert len({one.name for one in documents}) == 2
    assert notes == {("documents", "under 14 tokens"): 1}
