"""enwik8: real bytes from every kind of place, counted once, and one clear line for everything wrong."""

import hashlib
import importlib
import math
import os
import zipfile

import numpy as np
import pytest

import tasks
from tasks.vocabularies import bytes_of

TEXT = "<page>\n  <title>Zürich</title>\r\n\0 «größer» 東京 </page>\n".encode() * 40
TEXT = TEXT[: len(TEXT) // 20 * 20]
HELD_OUT = len(TEXT) // 20
PARTS = (TEXT[: -2 * HELD_OUT], TEXT[-2 * HELD_OUT : -HELD_OUT], TEXT[-HELD_OUT:])


def write(path, data):
    path.write_bytes(data)
    return path


def zip_of(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def directory_of(path, **files):
    path.mkdir()
    for name, data in files.items():
        write(path / name.replace("_", "."), data)
    return path


def tfds_of(path, *examples, split="train"):
    pytest.importorskip("tensorflow_datasets")
    from tasks.registry import library

    library()
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        name="enwik8",
        version="1.1.0",
        features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
        split_datasets={split: [(key, {"text": text}) for key, text in enumerate(examples)]},
        config="enwik8-raw",
        data_dir=str(path),
        disable_shuffling=True,
    )
    return path


PLACES = {
    "file": lambda tmp: write(tmp / "any name", TEXT),
    "zip": lambda tmp: zip_of(tmp / "enwik8.zip", other=b"x", enwik8=TEXT),
    "zip without the ending": lambda tmp: zip_of(tmp / "download", enwik8=TEXT),
    "directory with the file": lambda tmp: directory_of(tmp / "d", enwik8=TEXT),
    "directory with the zip": lambda tmp: zip_of(directory_of(tmp / "d") / "enwik8.zip", enwik8=TEXT).parent,
    "directory with parts": lambda tmp: directory_of(
        tmp / "d", train_txt=PARTS[0], valid_txt=PARTS[1], test_txt=PARTS[2]
    ),
    "TFDS data directory": lambda tmp: tfds_of(tmp / "d", TEXT[:700], TEXT[700:]),
    "TFDS version directory": lambda tmp: tfds_of(tmp / "d", TEXT) / "enwik8/enwik8-raw/1.1.0",
}


@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, reading its own files
@pytest.mark.parametrize("place", PLACES)
def test_the_same_bytes_from_every_place(tmp_path, place):
    task = tasks.enwik8(str(PLACES[place](tmp_path)), length=50, sample=True)
    for split, part in zip(("train", "validation", "test"), PARTS, strict=True):
        size = task.source.size(split)
        assert size == math.ceil(len(part) / 50)
        windows = [task.source.example(split, index, seed=None) for index in range(size)]
        assert [bytes_of(window["targets"]) for window in windows] == [
            part[start : start + 50] for start in range(0, len(part), 50)
        ]
        assert all(window["weights"].min() == 1 for window in windows)
    assert (
        task.fingerprint() == tasks.enwik8(str(write(tmp_path / "again", TEXT)), length=50, sample=True).fingerprint()
    )


def test_ids_and_padding_spelled_out(tmp_path):
    path = write(tmp_path / "f", bytes(range(236, 256)) + b"\0\1")  # 22 bytes: one each for validation and test
    task = tasks.enwik8(str(path), length=8, sample=True)
    batch = list(task.feed("test", 2, pipeline="numpy"))
    assert len(batch) == 1 and task.vocabulary == 258
    assert batch[0]["decoder_target_tokens"].tolist() == [[3, 0, 0, 0, 0, 0, 0, 0], [0] * 8]
    assert batch[0]["decoder_loss_weights"].tolist() == [[1, 0, 0, 0, 0, 0, 0, 0], [0] * 8]
    assert task.source.example("validation", 0, None)["targets"].tolist() == [2]
    assert task.source.example("train", 0, None)["targets"].tolist() == list(range(238, 246))
    assert task.source.example("train", 2, None)["targets"].tolist() == list(range(254, 258))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_every_byte_counts_once(tmp_path, split):
    task = tasks.enwik8(str(write(tmp_path / "f", TEXT)), length=64, sample=True)
    part = PARTS[("train", "validation", "test").index(split)]
    feed = task.feed(split, 3, seed=1, pipeline="numpy")
    if split == "train":  # one pass; it ends inside a batch only if the number of windows is no multiple of 3
        size = task.source.size(split)
        rows = [next(feed) for _ in range(math.ceil(size / 3))]
        tokens = np.concatenate([batch["decoder_target_tokens"] for batch in rows])[:size]
        weights = np.concatenate([batch["decoder_loss_weights"] for batch in rows])[:size]
    else:
        rows = list(feed)
        tokens = np.concatenate([batch["decoder_target_tokens"] for batch in rows])
        weights = np.concatenate([batch["decoder_loss_weights"] for batch in rows])
    assert weights.sum() == len(part)
    assert np.array_equal(weights > 0, tokens > 0)
    counts = np.bincount(tokens[weights > 0] - 2, minlength=256)
    assert np.array_equal(counts, np.bincount(np.frombuffer(part, np.uint8), minlength=256))


def test_overlapping_training_windows(tmp_path):
    path = str(write(tmp_path / "f", TEXT))
    task = tasks.enwik8(path, length=64, overlap=4, sample=True)
    starts = list(range(0, len(PARTS[0]) - 64 + 16, 16))  # the first that reaches the end is the last
    windows = [bytes_of(task.source.example("train", i, None)["targets"]) for i in range(task.source.size("train"))]
    assert windows == [PARTS[0][start : start + 64] for start in starts]
    assert windows[-1] == PARTS[0][-len(windows[-1]) :]
    plain = tasks.enwik8(path, length=64, sample=True)
    assert task.source.size("test") == plain.source.size("test")
    assert task.name == plain.name.replace("enwik8_64", "enwik8_64.overlap4")
    assert task.fingerprint() != plain.fingerprint()


def test_names(tmp_path):
    assert tasks.enwik8().name == "enwik8_64k" and tasks.enwik8().length == 65536
    assert tasks.enwik8(length=4096).name == "enwik8_4096"
    assert [metric.name for metric in tasks.enwik8().metrics] == ["bits_per_byte", "accuracy"]
    one = tasks.enwik8(str(write(tmp_path / "f", TEXT)), length=50, sample=True)
    other = tasks.enwik8(str(write(tmp_path / "g", TEXT[::-1])), length=50, sample=True)
    parts = directory_of(tmp_path / "d", train_txt=TEXT[:-50], valid_txt=TEXT[-50:-20], test_txt=TEXT[-20:])
    split = tasks.enwik8(str(parts), length=50, sample=True)
    assert one.name.startswith("enwik8_50.sample_")
    assert len({one.name, other.name, split.name}) == 3
    assert len({one.fingerprint(), other.fingerprint(), split.fingerprint()}) == 3


def test_the_genuine_file_is_recognised_and_never_called_a_sample(tmp_path, monkeypatch):
    module = importlib.import_module("tasks.enwik8")  # `tasks.enwik8` itself is the function
    monkeypatch.setattr(module, "SIZE", len(TEXT))
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(TEXT).hexdigest())
    for sample in (False, True):
        assert tasks.enwik8(str(write(tmp_path / "f", TEXT)), length=50, sample=sample).name == "enwik8_50"
    parts = directory_of(tmp_path / "d", train_txt=PARTS[0], valid_txt=PARTS[1], test_txt=PARTS[2])
    assert tasks.enwik8(str(parts), length=50).name == "enwik8_50"
    damaged = bytearray(TEXT)
    damaged[7] ^= 1
    with pytest.raises(tasks.DataError, match="SHA-256 .*another file or damaged"):
        tasks.enwik8(str(write(tmp_path / "g", damaged)), length=50)
    with pytest.raises(tasks.DataError, match="has [0-9,]+ bytes.*cut short"):
        tasks.enwik8(str(write(tmp_path / "g", TEXT[:-1])), length=50)
    with pytest.raises(tasks.DataError, match="not enwik8 alone"):
        tasks.enwik8(str(write(tmp_path / "g", TEXT + b"x")), length=50)
    shifted = directory_of(tmp_path / "e", train_txt=TEXT[:-50], valid_txt=TEXT[-50:-20], test_txt=TEXT[-20:])
    with pytest.raises(tasks.DataError, match="is split .* where 90/5/5 million bytes are customary"):
        tasks.enwik8(str(shifted), length=50)


def cut(path):
    data = path.read_bytes()
    return write(path, data[: len(data) // 2])


def flipped(path):
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF  # inside the compressed member
    return write(path, data)


WRONG = {
    "no such path": (lambda tmp: tmp / "nowhere", "no file or directory at"),
    "empty file": (lambda tmp: write(tmp / "f", b""), r"is empty \(0 bytes\)"),
    "one byte": (lambda tmp: write(tmp / "f", b"x"), "too short to be split 90/5/5: 1 bytes"),
    "shorter than a window": (
        lambda tmp: write(tmp / "f", b"x" * 100),
        "too short: its training part has 90 bytes, .*110",
    ),
    "empty zip": (lambda tmp: write(tmp / "f.zip", b""), r"is empty \(0 bytes\)"),
    "empty member": (lambda tmp: zip_of(tmp / "f.zip", enwik8=b""), r"is empty \(0 bytes\)"),
    "zip without members": (lambda tmp: zip_of(tmp / "f.zip"), "no member called enwik8 .it holds nothing"),
    "wrong member": (lambda tmp: zip_of(tmp / "f.zip", enwik9=TEXT), "no member called enwik8 .it holds enwik9"),
    "a page saved as the zip": (lambda tmp: write(tmp / "f.zip", b"<html>not found"), "not a usable zip"),
    "zip cut short": (lambda tmp: cut(zip_of(tmp / "f.zip", enwik8=TEXT)), "not a usable zip"),
    "zip with a flipped byte": (lambda tmp: flipped(zip_of(tmp / "f.zip", enwik8=TEXT)), "not a usable zip"),
    "empty directory": (lambda tmp: directory_of(tmp / "d"), "holds none of: enwik8, enwik8.zip, train.txt"),
    "a part missing": (lambda tmp: directory_of(tmp / "d", train_txt=TEXT, test_txt=TEXT), "lacks valid.txt"),
    "a part empty": (
        lambda tmp: directory_of(tmp / "d", train_txt=TEXT, valid_txt=b"", test_txt=TEXT),
        r"valid.txt is empty",
    ),
    "TFDS without training data": (lambda tmp: tfds_of(tmp / "d", TEXT, split="odd"), "no split 'train', only odd"),
}


@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, reading its own files
@pytest.mark.parametrize("case", WRONG)
def test_everything_wrong_is_one_clear_line(tmp_path, case):
    make, message = WRONG[case]
    with pytest.raises(tasks.DataError, match=message) as error:
        tasks.enwik8(str(make(tmp_path)), length=110, sample=True)
    assert "\n" not in str(error.value) and str(error.value).startswith("enwik8: ")


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may read every file")
def test_an_unreadable_file(tmp_path):
    path = write(tmp_path / "f", TEXT)
    path.chmod(0)
    with pytest.raises(tasks.DataError, match="cannot read .*Permission denied"):
        tasks.enwik8(str(path), length=50, sample=True)


def test_another_text_is_refused_unless_called_a_sample(tmp_path):
    path = str(write(tmp_path / "f", TEXT))
    with pytest.raises(tasks.DataError, match=r"where enwik8 has 100,000,000: it is cut short.*sample=True"):
        tasks.enwik8(path, length=50)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"length": 1}, "length must be a whole number from 2"),
        ({"overlap": 0}, "overlap must be a whole number from 1"),
        ({"overlap": 3}, "overlap must divide length, got 3 and 65536"),
    ],
)
def test_wrong_settings(setting, message):
    with pytest.raises(tasks.DataError, match=message):
        tasks.enwik8(**setting)


def test_a_task_without_data_knows_its_shapes_and_says_what_is_missing():
    task = tasks.enwik8()
    assert (task.length, task.vocabulary) == (65536, 258)
    for use in (task.fingerprint, lambda: task.feed("train", 1), lambda: task.feed("test", 1), task.register):
        with pytest.raises(tasks.DataError, match="no path to the data was given"):
            use()


def test_a_file_that_changed_is_read_again(tmp_path):
    path = write(tmp_path / "f.zip", b"")
    one = tasks.enwik8(str(zip_of(path, enwik8=TEXT)), length=50, sample=True)
    other = tasks.enwik8(str(zip_of(path, enwik8=TEXT[::-1] + b"1")), length=50, sample=True)
    assert one.fingerprint() != other.fingerprint()


def test_bytes_and_ids():
    every = bytes(range(256))
    assert bytes_of(np.arange(2, 258)) == every
    assert bytes_of(np.array([0, 67, 1, 68, 0])) == b"AB"
    with pytest.raises(ValueError, match="from 0 to 257, got 0 to 258"):
        bytes_of(np.array([0, 258]))


@pytest.mark.skipif("ENWIK8" not in os.environ, reason="ENWIK8 names no real enwik8, or a piece of one")
def test_real_bytes():
    task = tasks.enwik8(os.environ["ENWIK8"], sample=True)
    first = bytes_of(task.source.example("train", 0, seed=None)["targets"])
    assert len(first) == 65536 and first.startswith(b"<mediawiki xmlns=")
    total = 0.0
    for batch in task.feed("test", 2, pipeline="numpy"):
        total += float(batch["decoder_loss_weights"].sum(dtype=np.float64))
    assert total == task.source.corpus.sizes[2]
