"""Sentence pairs, line by line, from text files, WMT's .sgm files or TFDS, looked through before they are promised."""

import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tasks.prepared import prepared, record_files
from tasks.spans import Spans, of_lines, of_records, of_segments
from tasks.task import DataError

# What Moses' tokeniser writes for characters that mean something to Moses.
ENTITIES = {
    "&amp;": "&",
    "&#124;": "|",
    "&lt;": "<",
    "&gt;": ">",
    "&apos;": "'",
    "&quot;": '"',
    "&#91;": "[",
    "&#93;": "]",
}


@dataclass(frozen=True)
class Part:
    """Aligned pieces of two files. `form` says what stands between the bytes and the sentence.

    'lines'   nothing
    'tok'     Moses' tokeniser, which writes some characters as entities: they are put back, and the spaces that it set
              stay, since which of them were there before cannot be known
    'sgm'     runs of white space stand for one space, as in HTML; entities stay, as they do for sacreBLEU
    """

    source: Spans
    target: Spans
    form: str

    def pair(self, index: int) -> tuple[str, str]:
        source, target = (self._sentence(side[index]) for side in (self.source, self.target))
        return source, target

    def lines(self, chosen: slice) -> "Part":
        """Only these pairs."""
        indices = np.arange(len(self.source))[chosen]
        return Part(self.source.take(indices), self.target.take(indices), self.form)

    def _sentence(self, data: bytes) -> str:
        text = data.decode()
        if self.form == "tok":
            return re.sub("|".join(ENTITIES), lambda found: ENTITIES[found[0]], text)
        return re.sub(r"\s+", " ", text).strip() if self.form == "sgm" else text


@dataclass(frozen=True)
class Bitext:
    """Sentence pairs of one split: those of all its parts, one part after the other."""

    parts: tuple[Part, ...] = field(repr=False)

    def __len__(self) -> int:
        return sum(len(part.source) for part in self.parts)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(source, target) of each pair, in the stored order."""
        for part in self.parts:
            for index in range(len(part.source)):
                yield part.pair(index)

    @functools.cached_property
    def sha256(self) -> str:
        """Of all sentences as stored, whatever the container."""
        digest = hashlib.sha256()
        for part in self.parts:
            digest.update(part.form.encode())
            for side in (part.source, part.target):
                digest.update(side.sizes.astype("<i8").tobytes())
                for index in range(len(side)):
                    digest.update(side[index])
        return digest.hexdigest()


def read(place: Path, stems: Sequence[str], languages: tuple[str, str]) -> Bitext:
    """The pairs of these stems, joined, from the directory `place` or directories in it.

    A stem s with languages (en, de) stands for s.en and s.de, or for s-src.en.sgm and s-ref.de.sgm; s[a:b] for pairs a
    to b - 1 of it, as in Python.
    """
    return Bitext(tuple(_part(place, stem, languages) for stem in stems))


def _part(place: Path, stem: str, languages: tuple[str, str]) -> Part:
    sliced = re.fullmatch(r"(.+)\[(-?\d*):(-?\d*)\]", stem)
    part = _read_once(*_find(place, sliced[1] if sliced else stem, languages))
    if not sliced:
        return part
    part = part.lines(slice(*(int(bound) if bound else None for bound in sliced.groups()[1:])))
    if not len(part.source):
        raise DataError(f"{stem} leaves no pair of {sliced[1]}")
    return part


def read_tfds(version: Path, split: str, languages: tuple[str, str]) -> Bitext:
    """The pairs of a split of a prepared TFDS translation dataset."""
    files = tuple(record_files(version, split))
    if not files:
        raise DataError(f"{version} holds no TFRecord files of split {split!r}; prepare it with file_format tfrecord")
    return Bitext((_records_once(files, languages, _stamp(files)),))


def prepared_translation(place: Path, name: str) -> Path | None:
    """The one prepared TFDS dataset `name` at or below `place`; None if there is none."""
    found = prepared(place, name)
    if len(found) > 1:
        raise DataError(f"{place} holds several TFDS datasets; name one: {', '.join(map(str, found))}")
    return found[0] if found else None


def _find(place: Path, stem: str, languages: tuple[str, str]) -> tuple[tuple[Path, Path], str, tuple]:
    """((source file, target file), form, their stamps)."""
    ways = {
        "tok" if stem.endswith(".tok") else "lines": [f"{stem}.{language}" for language in languages],
        "sgm": [f"{stem}-{kind}.{language}.sgm" for kind, language in zip(("src", "ref"), languages, strict=True)],
    }
    for form, names in ways.items():
        sides = [[place / name] if (place / name).is_file() else sorted(place.glob(f"*/{name}")) for name in names]
        if all(sides):
            several = next((side for side in sides if len(side) > 1), None)
            if several:
                raise DataError(
                    f"several files could be meant: {', '.join(map(str, several))}; write the stem's folder"
                )
            files = (sides[0][0], sides[1][0])
            return files, form, _stamp(files)
        if any(sides):
            have, lacks = (names[bool(sides[0]) == want] for want in (False, True))
            raise DataError(f"{place} holds {have} but not {lacks}")
    options = " nor ".join(" and ".join(names) for names in ways.values())
    sources = sorted((*place.glob(f"*.{languages[0]}"), *place.glob(f"*/*.{languages[0]}")))
    there = [
        str(file.relative_to(place).with_suffix(""))
        for file in sources
        if file.with_suffix(f".{languages[1]}").is_file()
    ]
    instead = f"; set train, validation and test to what is there: {', '.join(there[:9])}" if there else ""
    raise DataError(f"{place}, and the directories in it, hold neither {options}{instead}")


def _stamp(files: Sequence[Path]) -> tuple:
    return tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files)


@functools.lru_cache(maxsize=16)
def _read_once(files: tuple[Path, Path], form: str, stamp: tuple) -> Part:
    """Every evaluation of a config builds its own task; they share one reading, as long as the files' stamps agree."""
    source, target = ((of_segments if form == "sgm" else of_lines)(file) for file in files)
    if len(source) != len(target):
        raise DataError(
            f"{files[0]} has {len(source):,} lines and {files[1]} {len(target):,}: they are not aligned; fetch both"
        )
    return Part(source, target, form)


@functools.lru_cache(maxsize=3)
def _records_once(files: tuple[Path, ...], languages: tuple[str, str], stamp: tuple) -> Part:
    source, target = (of_records(files, languages)[language] for language in languages)
    return Part(source, target, "lines")
