"""imagenet64 (Reformer, section 5): photographs of 64x64 pixels as 12,288 tokens, in bits per dimension.

The data are the down-sampled ImageNet of the PixelRNN paper (arXiv 1601.06759): train_64x64 and valid_64x64, 1,281,149
and 49,999 PNGs, in TFDS downsampled_imagenet/64x64. A token is one channel of one pixel, row by row, column by column,
the channel fastest; its id is the channel's value (vocabulary 256, no offset), and each position is scored.

The published validation pictures are what papers report, so they are the split 'test'. 'validation', which training
watches, is a fixed part of the published training pictures, 512 of them (1 in 20 of fewer than 10,240), and 'train' the
rest: a figure on 'test' has then influenced nothing.

The ImageNet64 of Chrabaszcz et al. (arXiv 1707.08819; arrays of 12,288 columns) is another down-sampling of the same
photographs: it can be read, but only as a sample, since figures on it are not comparable.
"""

import functools
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tasks import randomness
from tasks.images import SIDE, Arrays, Pictures, digest, open_array, picture_of, shrink, tokens_of, usable
from tasks.logs import say
from tasks.metrics import ACCURACY, BITS_PER_DIM
from tasks.prepared import prepared, record_files
from tasks.spans import Files, Spans, of_records, of_tar
from tasks.task import DataError, NotPublished, Task, check_integer, check_split

COUNTS = (1_281_149, 49_999)  # training and validation pictures as published
WATCHED = 512  # training pictures held out at most; the authors' code evaluates 64 batches of 8
LENGTHS = {3 * side * side: side for side in (SIDE >> power for power in range(7))}

TFDS = "downsampled_imagenet/64x64"
# Names of the two published parts, each with what the other release calls it.
PARTS = {"train": ("train_64x64", "train_data_batch_*"), "valid": ("valid_64x64", "val_data")}
ORIGIN = (
    "the pictures come from image-net.org (log in, 'downsampled ImageNet'), or from TFDS downsampled_imagenet/64x64"
)


@dataclass(frozen=True)
class Archive:
    """The published training and validation pictures, and the SHA-256 of both (see `tasks.images.digest`)."""

    train: Pictures = field(repr=False, compare=False)
    valid: Pictures = field(repr=False, compare=False)
    sha256: str

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.train), len(self.valid)

    @functools.cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """Split -> int64 numbers of its pictures, rising."""
        total = len(self.train)
        held = randomness.permutation(total, seed=0, epoch=0)[: min(WATCHED, total // 20)]
        return {
            "train": np.setdiff1d(np.arange(total), held),
            "validation": np.sort(held),
            "test": np.arange(len(self.valid)),
        }


@dataclass(frozen=True)
class Photographs:
    """Source of pictures of `side` x `side` pixels."""

    side: int
    archive: Archive | None

    def size(self, split: str) -> int:
        check_split(split)
        return len(self._archive().rows[split])

    def example(self, split: str, index: int, seed: int | None) -> dict[str, np.ndarray]:
        """'targets' int32 [3 * side * side], 'weights' float32 of ones."""
        row = int(self._archive().rows[split][randomness.place(self.size(split), index, seed)])
        picture = (self._archive().valid if split == "test" else self._archive().train)[row]
        targets = tokens_of(picture if self.side == SIDE else shrink(picture, self.side))
        return {"targets": targets, "weights": np.ones(len(targets), np.float32)}

    def identity(self) -> dict[str, object]:
        archive = self._archive()
        facts = {"side": self.side, "counts": list(archive.counts), "watched": len(archive.rows["validation"])}
        return {"kind": "imagenet64", **facts, "sha256": archive.sha256}

    def picture(self, ids: np.ndarray) -> np.ndarray:
        """uint8 [side, side, 3] of ids [3 * side * side]."""
        return picture_of(ids)

    def _archive(self) -> Archive:
        if self.archive is None:
            raise DataError(f"imagenet64: no path to the data was given; set imagenet64's `path`. {ORIGIN}")
        return self.archive


def imagenet64(path: str | None = None, length: int = 12288, sample: bool = False) -> Task:
    """The imagenet64 task, with the data at `path` looked through here and now.

    path    a directory that holds both train_64x64 and valid_64x64, each one a directory of PNGs, a .tar of one, or a
            .npz (array `data`) or .npy of uint8 [n, 64, 64, 3]; or the other release's train_data_batch_*.npz and
            val_data.npz (uint8 [n, 12288], channels outermost); or a TFDS directory with downsampled_imagenet/64x64.
            None gives a task that knows its shapes but has no data.
    length  tokens of a picture: 12288, or 3072, 768, 192, 48 ... for pictures reduced to 32x32, 16x16, 8x8, 4x4 ... by
            averaging equal squares. The task's name then says so.
    sample  accept other pictures than the published ones. The task's name then says so.
    """
    length = check_integer("imagenet64: length", length, least=3)
    if length not in LENGTHS:
        usual = ", ".join(f"{tokens} ({side}x{side})" for tokens, side in LENGTHS.items())
        raise DataError(
            f"imagenet64: length must be 3 x side x side with a side that divides 64: {usual}; got {length}"
        )
    side = LENGTHS[length]
    archive = None if path is None else _archive(path, sample)
    name = "imagenet64" if side == SIDE else f"imagenet64_{side}x{side}"
    if archive and archive.counts != COUNTS:
        name += f".sample_{archive.sha256[:8]}"
    return Task(name, length, 256, (BITS_PER_DIM, ACCURACY), Photographs(side, archive))


def _archive(path: str, sample: bool) -> Archive:
    place = Path(path).expanduser()
    try:
        parts = _find(place)
        stamp = tuple((file.stat().st_size, file.stat().st_mtime_ns) for part in parts for file in part)
        archive = _read_once(parts, stamp)
    except OSError as error:
        raise DataError(f"imagenet64: cannot read {error.filename or path}: {error.strerror or error}") from None
    if archive.counts != COUNTS and not sample:
        found = "has {:,} training and {:,} validation pictures".format(*archive.counts)
        raise NotPublished(
            f"imagenet64: {path} {found} that can be used, where {COUNTS[0]:,} and {COUNTS[1]:,} were published"
        )
    if len(archive.train) < 20:
        raise DataError(f"imagenet64: {path} has {len(archive.train)} training pictures, at least 20 are needed")
    return archive


def _find(place: Path) -> tuple[tuple[Path, ...], ...]:
    """For training and for validation: the file or files that hold its pictures, or the directory of them."""
    if not place.exists():
        raise DataError(f"imagenet64: no file or directory at {place}")
    if not place.is_dir():
        raise DataError(
            f"imagenet64: {place} is one file; give the directory that holds both train_64x64 and valid_64x64"
        )
    parts = tuple(_part(place, *names) for names in PARTS.values())
    if all(parts):
        return parts
    if any(parts):
        have, lacks = (stem if parts[0] else other for stem, other in (("train", "valid"), ("valid", "train")))
        raise DataError(
            f"imagenet64: {place} holds {have}_64x64 but no {lacks}_64x64 (a directory, .tar, .npz or .npy)"
        )
    datasets = prepared(place, TFDS)
    if len(datasets) > 1:
        raise DataError(f"imagenet64: {place} holds several TFDS datasets; name one: {', '.join(map(str, datasets))}")
    if not datasets:
        raise DataError(
            f"imagenet64: directory {place} holds neither train_64x64 and valid_64x64 (directory, .tar, .npz or .npy) "
            f"nor a prepared TFDS dataset {TFDS}. {ORIGIN}"
        )
    records = tuple(tuple(record_files(datasets[0], split)) for split in ("train", "validation"))
    if not all(records):
        raise DataError(f"imagenet64: {datasets[0]} holds no TFRecord files of both 'train' and 'validation'")
    return records


def _part(place: Path, stem: str, other: str) -> tuple[Path, ...]:
    for suffix in (".npy", ".npz", "", ".tar"):
        file = place / f"{stem}{suffix}"
        if file.is_file() if suffix else file.is_dir():
            return (file,)
    return tuple(sorted(place.glob(f"{other}.npz"), key=lambda file: (len(file.name), file.name)))


@functools.lru_cache(maxsize=2)
def _read_once(parts: tuple[tuple[Path, ...], ...], stamp) -> Archive:
    """Every evaluation of a config builds its own task; they share one reading, as long as the files' stamps agree."""
    train, valid = (_open(files) for files in parts)
    return Archive(train, valid, hashlib.sha256((digest(train) + digest(valid)).encode()).hexdigest())


def _open(files: tuple[Path, ...]) -> Pictures:
    first = files[0]
    if first.suffix in (".npy", ".npz"):
        return Arrays([open_array(file) for file in files])
    if ".tfrecord" in first.name:
        return usable(of_records(files, ["image"])["image"], "imagenet64")
    pictures: Spans | Files
    if first.is_dir():
        inside = sorted(os.listdir(first))
        pngs = [name for name in inside if name.lower().endswith(".png")]
        pictures, others = Files(first, pngs), len(inside) - len(pngs)
    else:
        pictures, others = of_tar(first, ".png")
    if others:
        say(f"imagenet64: {first}: {others:,} files that are not called .png are left out")
    return usable(pictures, "imagenet64")
