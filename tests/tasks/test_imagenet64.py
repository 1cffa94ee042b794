"""imagenet64: the same pixels from every kind of place, tokens in the stated order, one line for everything wrong."""

import importlib
import io
import logging
import math
import os
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image

import tasks
from tasks.images import picture_of, png_fault, shrink

MODULE = importlib.import_module("tasks.imagenet64")  # `tasks.imagenet64` itself is the function
PIXELS = np.random.default_rng(0).integers(0, 256, (45, 64, 64, 3)).astype(np.uint8)
PARTS = {"train_64x64": PIXELS[:40], "valid_64x64": PIXELS[40:]}


def png(pixels, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels, **options).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def folders(place, parts=PARTS):
    for name, pictures in parts.items():
        (place / name).mkdir(parents=True)
        for number, picture in enumerate(pictures):
            (place / name / f"{number:05}.png").write_bytes(picture if isinstance(picture, bytes) else png(picture))
    return place


def tars(place):
    for name, pictures in PARTS.items():
        with tarfile.open(place / f"{name}.tar", "w") as archive:
            for number in reversed(range(len(pictures))):  # the members' order is that of the names, not of the file
                data = png(pictures[number])
                member = tarfile.TarInfo(f"{name}/{number:05}.png")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return place


def arrays(place, save, change=lambda pixels: pixels):
    for name, pictures in PARTS.items():
        save(str(place / name), change(pictures))
    return place


def by_channels(pixels):
    return np.stack([picture.transpose(2, 0, 1).reshape(-1) for picture in pixels])


def other_release(place):
    for number, part in enumerate(np.split(by_channels(PARTS["train_64x64"]), 10), 1):
        np.savez(place / f"train_data_batch_{number}.npz", data=part, labels=np.ones(4))
    np.savez(place / "val_data.npz", data=by_channels(PARTS["valid_64x64"]))
    return place


def tfds(place):
    pytest.importorskip("tensorflow_datasets")
    from tasks.registry import library

    library()
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        name="downsampled_imagenet",
        version="2.0.0",
        features=tfds.features.FeaturesDict({"image": tfds.features.Image(encoding_format="jpeg")}),
        split_datasets={
            split: [(key, {"image": io.BytesIO(png(picture))}) for key, picture in enumerate(PARTS[part])]
            for split, part in (("train", "train_64x64"), ("validation", "valid_64x64"))
        },
        config="64x64",
        data_dir=str(place),
        disable_shuffling=True,
    )
    return place


PLACES = {
    "folders": folders,
    "tars": tars,
    "npz": lambda place: arrays(place, lambda name, data: np.savez(name, data=data)),
    "compressed npz": lambda place: arrays(place, lambda name, data: np.savez_compressed(name, data=data, labels=1)),
    "npy": lambda place: arrays(place, np.save),
    "flat npz": lambda place: arrays(place, lambda name, data: np.savez(name, data=data), by_channels),
    "the other release": other_release,
    "TFDS": tfds,
    "TFDS config directory": lambda place: tfds(place) / "downsampled_imagenet/64x64",
}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return tasks.imagenet64(str(PLACES["npy"](tmp_path_factory.mktemp("npy"))), sample=True)


def stored(task, split):
    return [task.source.example(split, index, None)["targets"] for index in range(task.source.size(split))]


@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, writing its own files
@pytest.mark.parametrize("place", PLACES)
def test_the_same_pictures_from_every_place(tmp_path, place, usual):
    task = tasks.imagenet64(str(PLACES[place](tmp_path)), sample=True)
    assert task.name == usual.name and task.fingerprint() == usual.fingerprint()
    for split, whole in (("test", PIXELS[40:]), ("validation", None), ("train", None)):
        tokens = stored(task, split)
        np.testing.assert_array_equal(tokens, stored(usual, split))
        if whole is not None:
            np.testing.assert_array_equal(tokens, whole.reshape(-1, 12288))


def test_tokens_go_by_row_column_and_channel(usual):
    example = usual.source.example("test", 2, None)
    expected = [int(PIXELS[42, row, column, c]) for row in range(64) for column in range(64) for c in range(3)]
    assert example["targets"].tolist() == expected and example["targets"].dtype == np.int32
    assert example["weights"].tolist() == [1.0] * 12288
    np.testing.assert_array_equal(picture_of(example["targets"]), PIXELS[42])
    batch = next(usual.feed("test", 2, pipeline="numpy"))
    assert batch["decoder_input_tokens"][1, :3].tolist() == [0, *PIXELS[41, 0, 0, :2]]
    assert usual.vocabulary == 256 and [metric.name for metric in usual.metrics] == ["bits_per_dim", "accuracy"]


def test_every_training_picture_is_in_train_or_validation_and_test_is_the_published_one(usual):
    rows = usual.source.archive.rows
    assert {split: len(found) for split, found in rows.items()} == {"train": 38, "validation": 2, "test": 5}
    assert sorted([*rows["train"], *rows["validation"]]) == list(range(40))
    tokens = np.concatenate([stored(usual, split) for split in ("train", "validation")])
    assert sorted(map(bytes, tokens.astype(np.uint8))) == sorted(map(bytes, PIXELS[:40]))


def test_reduced_pictures_are_means_over_squares(tmp_path):
    place = PLACES["npy"](tmp_path)
    task = tasks.imagenet64(str(place), length=768, sample=True)
    assert task.name.startswith("imagenet64_16x16.sample_") and task.length == 768
    expected = np.zeros((16, 16, 3), np.int64)
    for row, column, channel in np.ndindex(16, 16, 3):
        square = PIXELS[40, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4, channel].astype(np.float64)
        expected[row, column, channel] = math.floor(square.mean() + 0.5)
    np.testing.assert_array_equal(picture_of(task.source.example("test", 0, None)["targets"]), expected)
    white = np.full((64, 64, 3), 255, np.uint8)
    assert shrink(white, 1).tolist() == [[[255] * 3]] and shrink(white, 64).tolist() == white.tolist()
    assert task.fingerprint() != tasks.imagenet64(str(place), sample=True).fingerprint()


def test_names_and_tasks_without_data():
    assert [tasks.imagenet64(length=length).name for length in (12288, 3072, 192)] == [
        "imagenet64", "imagenet64_32x32", "imagenet64_8x8",
    ]  # fmt: skip
    task = tasks.imagenet64()
    for use in (task.fingerprint, lambda: task.feed("train", 1), lambda: task.feed("test", 1), task.register):
        with pytest.raises(tasks.DataError, match="no path to the data was given"):
            use()
    with pytest.raises(tasks.DataError, match=r"length must be 3 x side x side .*12288 \(64x64\), .*got 4096"):
        tasks.imagenet64(length=4096)


def test_the_published_counts_are_recognised(tmp_path, monkeypatch):
    place = str(PLACES["npy"](tmp_path))
    with pytest.raises(tasks.DataError, match="has 40 training and 5 validation pictures .*1,281,149 and 49,999"):
        tasks.imagenet64(place)
    monkeypatch.setattr(MODULE, "COUNTS", (40, 5))
    assert tasks.imagenet64(place).name == tasks.imagenet64(place, sample=True).name == "imagenet64"


def chunk(data, name, body):
    """A PNG with one more chunk behind its header."""
    whole = name + body
    return data[:33] + len(body).to_bytes(4, "big") + whole + zlib.crc32(whole).to_bytes(4, "big") + data[33:]


GOOD = png(PIXELS[0])
UNUSABLE = {
    "empty": (b"", "empty"),
    "a page": (b"<html>not found</html>", "not a PNG"),
    "cut short": (GOOD[:-20], "cut short"),
    "only a header": (GOOD[:33], "cut short"),
    "a flipped bit": (GOOD[:500] + bytes([GOOD[500] ^ 1]) + GOOD[501:], "damaged .checksum of chunk 'IDAT'"),
    "no pixels": (GOOD[:33] + GOOD[-12:], "damaged .chunks are missing"),
    "wrong size": (png(PIXELS[0, :, :63]), "63x64 pixels, 64x64 wanted"),
    "transparency": (png(np.zeros((64, 64, 4), np.uint8)), "RGB with transparency in 8 bits"),
    "a transparent colour": (chunk(GOOD, b"tRNS", b"\0" * 6), "it has transparency"),
    "16 bits": (png(np.zeros((64, 64), np.uint16)), "grey in 16 bits; RGB in 8 bits wanted"),
    "jpeg": (b"\xff\xd8\xff\xe0" + GOOD, "not a PNG"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_pictures_are_left_out_named_and_counted(tmp_path, caplog, case):
    data, message = UNUSABLE[case]
    parts = {"train_64x64": [*PARTS["train_64x64"][:20], data], "valid_64x64": PARTS["valid_64x64"]}
    place = folders(tmp_path, parts)
    (place / "train_64x64" / "notes.txt").write_text("x")
    with caplog.at_level(logging.WARNING):
        task = tasks.imagenet64(str(place), sample=True)
    assert task.source.archive.counts == (20, 5)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 and "1 files that are not called .png are left out" in lines[0]
    assert lines[1].startswith("imagenet64: ") and "00020.png is left out" in lines[1] and "\n" not in lines[1]
    with pytest.raises(AssertionError, match=message):
        assert png_fault(data) is None, png_fault(data)


def test_many_unusable_pictures_are_not_all_listed(tmp_path, caplog):
    place = folders(tmp_path, {"train_64x64": [*PIXELS[:20], *[b"x"] * 15], "valid_64x64": [b""]})
    with pytest.raises(tasks.DataError, match="not one usable picture .the first: empty"):
        tasks.imagenet64(str(place), sample=True)
    assert [record.getMessage() for record in caplog.records][10] == "imagenet64: 15 pictures are left out in all"


def test_grey_and_palette_become_rgb(tmp_path):
    grey = PIXELS[0, :, :, 0]
    palette = Image.fromarray(grey).convert("P")
    buffer = io.BytesIO()
    palette.save(buffer, "png")
    place = folders(tmp_path, {"train_64x64": PIXELS[:20], "valid_64x64": [png(grey), buffer.getvalue()]})
    task = tasks.imagenet64(str(place), sample=True)
    for index in (0, 1):
        picture = picture_of(task.source.example("test", index, None)["targets"])
        np.testing.assert_array_equal(picture, np.repeat(grey[:, :, None], 3, axis=2))


def save(place, name, **data):
    np.savez(place / name, **data)
    return place


def whole(place, **data):
    np.save(place / "valid_64x64.npy", PARTS["valid_64x64"])
    return save(place, "train_64x64.npz", **data)


def page(place, name):
    whole(place, data=PIXELS)
    return text(place, name, b"<html>")


def cut(place, size, name):
    return text(place, name, (place / name).read_bytes()[:size])


def text(place, name, data):
    (place / name).write_bytes(data)
    return place


WRONG = {
    "no such path": (lambda place: place / "nowhere", "no file or directory at"),
    "one file": (lambda place: text(place, "f", b"x") / "f", "is one file; give the directory"),
    "empty directory": (lambda place: place, "holds neither train_64x64 and valid_64x64"),
    "no validation": (lambda place: save(place, "train_64x64.npz", data=PIXELS), " train_64x64 but no valid_64x64"),
    "no training": (lambda place: save(place, "valid_64x64.npz", data=PIXELS), "holds valid_64x64 but no train_64x64"),
    "fractions": (lambda place: whole(place, data=PIXELS / np.float32(255)), "holds float32 numbers; uint8 wanted"),
    "32 x 32": (lambda place: whole(place, data=PIXELS[:, ::2, ::2]), r"has shape \[45, 32, 32, 3\]; \[n, 64, 64, 3\]"),
    "no pictures": (lambda place: whole(place, data=PIXELS[:0]), r"holds no picture \(shape \[0, 64, 64, 3\]\)"),
    "too few pictures": (lambda place: whole(place, data=PIXELS[:19]), "has 19 training pictures, at least 20"),
    "another name": (lambda place: whole(place, images=PIXELS), "has no array called data .it holds images"),
    "objects": (lambda place: whole(place, data=np.array([{}])), "is not a usable .npz file"),
    "a page saved as npz": (lambda place: page(place, "train_64x64.npz"), "not a usable .npz"),
    "a page saved as npy": (lambda place: page(place, "train_64x64.npy"), "not a usable .npy"),
    "npz cut short": (lambda place: cut(whole(place, data=PIXELS), 9999, "train_64x64.npz"), "not a usable .npz"),
    "compressed tar": (lambda place: text(tars(place), "train_64x64.tar", zlib.compress(b"x")), "is not a plain tar"),
    "tar cut short": (
        lambda place: cut(tars(place), 20000, "train_64x64.tar"),
        "train_64x64.tar (is cut short|is not a plain tar)",
    ),
    "empty folders": (lambda place: folders(place, dict.fromkeys(PARTS, ())), "not one usable picture .there are none"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_everything_wrong_is_one_clear_line(tmp_path, case):
    make, message = WRONG[case]
    with pytest.raises(tasks.DataError, match=message) as error:
        tasks.imagenet64(str(make(tmp_path)), sample=True)
    assert "\n" not in str(error.value)


def test_a_compressed_array_that_does_not_fit_is_to_be_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.images.LOADED_AT_MOST", 1000)
    place = PLACES["compressed npz"](tmp_path)
    with pytest.raises(tasks.DataError, match="unzip -p train_64x64.npz data.npy > train_64x64.npy"):
        tasks.imagenet64(str(place), sample=True)


def test_ids_of_no_picture():
    for ids in ([], [0] * 4, np.zeros((4, 3)), [0] * 27 + [1] * 27):
        with pytest.raises(ValueError, match="3 x side x side ids"):
            picture_of(ids)
    for wrong in (-1, 256):
        with pytest.raises(ValueError, match="from 0 to 255"):
            picture_of([0, 0, wrong])


@pytest.mark.skipif("IMAGENET64" not in os.environ, reason="IMAGENET64 names no directory of real pictures")
def test_real_pictures():
    task = tasks.imagenet64(os.environ["IMAGENET64"], sample=True)
    total = sum(float(batch["decoder_loss_weights"].sum(dtype=np.float64)) for batch in task.feed("test", 16))
    assert total == 12288 * len(task.source.archive.valid)
