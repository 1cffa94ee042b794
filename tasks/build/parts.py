"""The first pass: shards of a source's units, each read into one part file with its facts beside it.

    00000.records  the documents as TFRecords, in the order in which they were read
    00000.json     for each of them what deciding about it takes (`Entry`), and what was left out

Facts are written last, so a part that has them is whole, and no worker does it again. Where the cuts between parts lie
changes no byte of the result.
"""

import base64
import contextlib
import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tasks.build import records
from tasks.build.duplicates import signature
from tasks.build.folders import touched
from tasks.build.source import Document, Notes, Source, Unit
from tasks.codecs import codec
from tasks.task import DataError
from tasks.texts import flaw

# A part is a 256th of the source, but no smaller and no larger than these many bytes, and of so many units at most.
SHARES, SMALLEST, LARGEST, MOST_UNITS = 256, 2**20, 2**26, 1000


@dataclass(frozen=True)
class Entry:
    """What is known of a document without its text.

    offset, length  where its record lies in the part file
    parts           files that it was made of
    signature       of its text, base64 (`tasks.build.duplicates`); '' if its split is given, as are all others'
    tokens          in the vocabulary; None if none was given
    """

    name: str
    split: str
    licence: str
    source: str
    group: str
    parts: int
    bytes: int
    tokens: int | None
    sha256: str
    offset: int
    length: int
    signature: str

    def numbers(self) -> np.ndarray:
        """uint16 [128]; like no others' where there is no signature"""
        alone = hashlib.shake_256(self.sha256.encode()).digest(256)
        return np.frombuffer(base64.b64decode(self.signature) or alone, "<u2")


@dataclass(frozen=True)
class Shard:
    """Units that are read into one part file."""

    number: int
    units: tuple[Unit, ...]

    @property
    def size(self) -> int:
        return sum(unit.size for unit in self.units)


def cut(units: list[Unit]) -> list[Shard]:
    """Sorted units as runs of about the same size, enough of them for many workers."""
    most = min(max(sum(unit.size for unit in units) // SHARES, SMALLEST), LARGEST)
    runs: list[list[Unit]] = []
    size = 0
    for unit in units:
        if not runs or size + unit.size > most or len(runs[-1]) == MOST_UNITS:
            runs.append([])
            size = 0
        runs[-1].append(unit)
        size += unit.size
    return [Shard(number, tuple(run)) for number, run in enumerate(runs)]


def records_file(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.records"


def facts_file(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.json"


def is_read(folder: Path, shard: Shard) -> bool:
    """Whether a shard has its part file already, and none of its units was written since."""
    try:
        read = facts_file(folder, shard.number).stat().st_mtime_ns
    except FileNotFoundError:
        return False
    return all(touched(unit.place) <= read for unit in shard.units)


def facts(folder: Path, number: int) -> tuple[list[Entry], Notes]:
    """What a part file holds, and what was left out of it."""
    held = json.loads(facts_file(folder, number).read_text())
    return [Entry(*one) for one in held["documents"]], Counter({(what, why): n for what, why, n in held["notes"]})


def build_part(
    source: Source,
    shard: Shard,
    folder: Path,
    features: tuple[str, str],
    vocabulary: str | None,
    all_signed: bool = False,
) -> None:
    """Reads a shard into its part file. Runs on a worker.

    features    names of the features that hold a document's text and its name
    all_signed  documents whose split is given have signatures as well, since others' may not be
    """
    notes: Notes = Counter()
    words = codec(vocabulary) if vocabulary else None
    entries, place = [], 0
    with whole(records_file(folder, shard.number)) as out:
        for document in _documents(source, shard, notes):
            data = document.text.encode()
            tokens = None if words is None else len(words.encode(document.text))
            length = records.write(out, _example(document, data, features))
            entries.append(_entry(document, data, tokens, place, length, all_signed))
            place += length
    told = [[what, why, count] for (what, why), count in sorted(notes.items())]
    with whole(facts_file(folder, shard.number)) as out:
        out.write(json.dumps({"documents": [astuple(entry) for entry in entries], "notes": told}).encode())


def _documents(source: Source, shard: Shard, notes: Notes) -> Iterator[Document]:
    """The shard's documents that can be used."""
    for unit in shard.units:
        try:
            for document in source.read(unit, notes):
                if reason := flaw(document.text):
                    notes["documents", reason] += 1
                elif not document.text.strip():
                    notes["documents", "empty"] += 1
                else:
                    yield replace(document, name=_plain(document.name), source=_plain(document.source))
        except OSError as error:
            notes["units", f"that could not be read ({error.strerror or error})"] += 1
        except DataError:
            raise
        except Exception as error:  # a fault of ours; without the unit's name nobody could look into it
            raise DataError(f"{source.name}: reading {unit.name} failed: {type(error).__name__}: {error}") from error


def _plain(name: str) -> str:
    """A name that can be written: file names that are no UTF-8 have half surrogates in it."""
    return name.encode(errors="backslashreplace").decode()


def _example(document: Document, data: bytes, features: tuple[str, str]) -> bytes:
    text, name = features
    extra = {"licence": document.licence, "source": document.source}
    return records.example(
        {text: data, name: document.name.encode(), **{key: value.encode() for key, value in extra.items()}}
    )


def _entry(document: Document, data: bytes, tokens: int | None, offset: int, length: int, signed: bool) -> Entry:
    signed = signed or not document.split
    numbers = "" if not signed else base64.b64encode(signature(data).astype("<u2").tobytes()).decode()
    return Entry(
        document.name,
        document.split,
        document.licence,
        document.source,
        document.group,
        document.parts,
        len(data),
        tokens,
        hashlib.sha256(data).hexdigest(),
        offset,
        length,
        numbers,
    )


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which stands at `path` when it is complete and on the disk, and never before."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
