"""Prepared TFDS datasets as a source of texts, read without TensorFlow: a unit is a record file."""

from collections.abc import Iterator
from pathlib import Path

from tasks.build import records
from tasks.build.source import Notes, Unit
from tasks.prepared import prepared, record_files
from tasks.spans import bytes_features
from tasks.task import SPLITS, DataError


def units(top: Path, dataset: str, name: str) -> list[Unit]:
    """The record files of the one prepared dataset `dataset` at or below a folder, as <split>/<file>; or none."""
    found = prepared(top, dataset)
    if len(found) > 1:
        raise DataError(f"{name}: {top} holds several TFDS datasets; name one: {', '.join(map(str, found))}")
    files = [(split, file) for place in found for split in SPLITS for file in record_files(place, split)]
    if found and not files:
        raise DataError(f"{name}: {found[0]} holds no TFRecord files; prepare it with file_format tfrecord")
    return sorted(Unit(f"{split}/{file.name}", str(file), file.stat().st_size) for split, file in files)


def is_unit(unit: Unit) -> bool:
    return ".tfrecord" in unit.name.rsplit("/", 1)[-1]


def examples(unit: Unit, notes: Notes) -> Iterator[dict[str, bytes]]:
    """The features of each record that are byte strings; what follows a damaged one is lost, and noted."""
    try:
        with open(unit.place, "rb") as file:
            for data in records.read(file):
                places = bytes_features(data, 0, len(data))
                yield {name.decode("utf-8", "replace"): data[begin:end] for name, (begin, end) in places}
    except OSError:
        notes["record files", "unreadable"] += 1
    except (records.DamagedRecord, DataError, LookupError, MemoryError, OverflowError):
        notes["record files", "kept up to where they are damaged"] += 1
