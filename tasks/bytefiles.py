"""The bytes of a corpus, from wherever they lie: a file, a zip, a directory of one of them or of three parts, TFDS.

Everything that can be wrong with a path is found here and told in one line, before anything is compiled.
"""

import functools
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tasks.prepared import prepared
from tasks.task import DataError

# One array (the whole corpus, still to be split) or three (train, validation, test): uint8 [n] each.
Parts = tuple[np.ndarray, ...]

ZIPPED_AT_MOST = 1 << 30  # bytes of a member of a zip, which is read into memory

PART_FILES = ("train.txt", "valid.txt", "test.txt")


def read_parts(path: str, name: str) -> Parts:
    """The bytes of corpus `name` at `path`, which is one of

        a file of the bytes; a zip with a member called `name`;
        a directory that holds `name`, `name`.zip, or train.txt, valid.txt and test.txt;
        a TFDS directory (or one above it) with a prepared dataset of one text or bytes feature.

    DataError with one line where there is nothing of the kind, or it is broken or empty.
    """
    place = Path(path).expanduser()
    try:
        if not place.exists():
            raise DataError(f"{name}: no file or directory at {path}")
        read, files = _recognise(place, name)
        stamp = tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files)
        parts = _read_once(read, tuple(files), name, stamp)
    except OSError as error:
        raise DataError(f"{name}: cannot read {error.filename or path}: {error.strerror or error}") from None
    if not all(len(part) for part in parts):
        empty = " and ".join(str(file) for file, part in zip(files, parts, strict=False) if not len(part))
        raise DataError(f"{name}: {empty} is empty (0 bytes)")
    return parts


def files_of(path: str, name: str) -> list[Path]:
    """The files that `read_parts` reads."""
    return _recognise(Path(path).expanduser(), name)[1]


@functools.lru_cache(maxsize=2)
def _read_once(read: Callable[[tuple[Path, ...], str], Parts], files: tuple[Path, ...], name: str, stamp) -> Parts:
    """Every evaluation of a config builds its own task; they share one copy, as long as the files' stamps agree."""
    return read(files, name)


def _recognise(place: Path, name: str) -> tuple[Callable[[tuple[Path, ...], str], Parts], list[Path]]:
    """(reader, files) for what lies at an existing path."""
    if place.is_file():
        return (_read_zip if place.suffix == ".zip" or zipfile.is_zipfile(place) else _read_plain), [place]
    if not place.is_dir():
        raise DataError(f"{name}: {place} is neither a file nor a directory")
    for file in (place / name, place / f"{name}.zip"):
        if file.is_file():
            return _recognise(file, name)
    parts = [place / part for part in PART_FILES]
    missing = [part.name for part in parts if not part.is_file()]
    if not missing:
        return _read_plain, parts
    if len(missing) < len(parts):
        raise DataError(f"{name}: {place} lacks {', '.join(missing)} (all of {', '.join(PART_FILES)} are needed)")
    datasets = prepared(place, name)
    if len(datasets) == 1:
        return _read_tfds, datasets
    if datasets:
        raise DataError(f"{name}: {place} holds several TFDS datasets; name one: {', '.join(map(str, datasets))}")
    raise DataError(
        f"{name}: directory {place} holds none of: {name}, {name}.zip, {' + '.join(PART_FILES)}, "
        f"a prepared TFDS dataset called {name}"
    )


def _read_plain(files: tuple[Path, ...], name: str) -> Parts:
    # Mapped, not read: only the pages of the windows in use need to stay in memory. An empty file cannot be mapped.
    return tuple(np.memmap(f, np.uint8, "r") if f.stat().st_size else np.zeros(0, np.uint8) for f in files)


def _read_zip(files: tuple[Path, ...], name: str) -> Parts:
    (file,) = files
    if not file.stat().st_size:
        return (np.zeros(0, np.uint8),)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.namelist()
            if name not in members:
                held = ", ".join(members[:5]) or "nothing"
                raise DataError(f"{name}: {file} has no member called {name} (it holds {held})")
            if (size := archive.getinfo(name).file_size) > ZIPPED_AT_MOST:
                raise DataError(f"{name}: {file} would expand to {size:,} bytes; unpack it if that is meant")
            return (np.frombuffer(archive.read(name), np.uint8),)
    # zipfile reports damage, encryption and unknown compression through all of these.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{name}: {file} is not a usable zip ({error}); fetch it again") from None


def _read_tfds(files: tuple[Path, ...], name: str) -> Parts:
    from tasks.registry import library

    library()  # TensorFlow is about to start: quietly, and off the accelerators
    import tensorflow_datasets as tfds

    (place,) = files
    builder = tfds.builder_from_directory(place)
    features = list(builder.info.features)
    text = "text" if "text" in features else features[0]
    if len(features) > 1 and text != "text":
        raise DataError(f"{name}: the TFDS dataset in {place} needs one text feature, it has {', '.join(features)}")
    splits = ["train", "validation", "test"]
    if not set(splits) <= set(builder.info.splits):
        splits = ["train"]
    if not set(splits) <= set(builder.info.splits):
        raise DataError(
            f"{name}: the TFDS dataset in {place} has no split 'train', only {', '.join(builder.info.splits)}"
        )
    parts = (tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)) for split in splits)
    # A dataset of lines has lost the line ends, and one of pieces may be shuffled: the checksum tells.
    return tuple(np.frombuffer(b"".join(example[text] for example in part), np.uint8) for part in parts)
