"""Many short pieces of bytes in few large files, by their places: what a corpus looks like before it is decoded.

Lines of a text, members of a tar and features of TFRecords become a `Spans`: three small arrays that say where each
piece lies. Any piece is reached at once, and only the pages in use are in memory.
"""

import codecs
import functools
import mmap
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tasks.task import DataError

_BLOCK = 1 << 24  # bytes looked at together


class Spans:
    """Piece i is the `sizes[i]` bytes from `begins[i]` on of file number `which[i]`; all three are int64 [n]."""

    def __init__(self, files: Iterable[Path], which, begins, sizes):
        self.files = tuple(files)
        self.which, self.begins, self.sizes = (np.asarray(part, np.int64) for part in (which, begins, sizes))
        self._map = functools.lru_cache(maxsize=64)(self._open)

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, index: int) -> bytes:
        begin, size = int(self.begins[index]), int(self.sizes[index])
        return self._map(int(self.which[index]))[begin : begin + size] if size else b""

    def label(self, index: int) -> str:
        """Where piece `index` lies, in words for a message."""
        which = self.which[index]
        return f"{self.files[which]}, entry {np.sum(self.which[:index] == which) + 1}"

    def _open(self, which: int) -> mmap.mmap:
        with open(self.files[which], "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def take(self, indices: np.ndarray) -> "Spans":
        """Only these pieces, in this order."""
        return Spans(self.files, self.which[indices], self.begins[indices], self.sizes[indices])


class Files:
    """Files of one folder, each of them a piece; to a reader like `Spans`, but read instead of mapped."""

    def __init__(self, folder: Path, names: Sequence[str]):
        self.folder, self.names = folder, names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> bytes:
        with open(self.label(index), "rb", buffering=0) as file:
            return file.read()

    def label(self, index: int) -> str:
        return os.path.join(self.folder, self.names[index])

    def take(self, indices: np.ndarray) -> "Files":
        return Files(self.folder, [self.names[index] for index in indices])


def of_tar(file: Path, suffix: str) -> tuple[Spans, int]:
    """(members whose name ends in `suffix`, by name; how many other files there are) in a tar without compression."""
    found, others = [], 0
    try:
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                if member.isfile() and member.name.lower().endswith(suffix):
                    found.append((member.name, member.offset_data, member.size))
                elif member.isfile():
                    others += 1
    except tarfile.TarError as error:
        raise DataError(
            f"{file} is not a plain tar ({error}); unpack it if it is compressed, or fetch it again"
        ) from None
    found.sort()
    end = file.stat().st_size
    if found and max(begin + size for _, begin, size in found) > end:
        raise DataError(f"{file} is cut short at {end:,} bytes; fetch it again")
    begins, sizes = ([row[column] for row in found] for column in (1, 2))
    return Spans([file], np.zeros(len(found), np.int64), begins, sizes), others


def of_records(files: Sequence[Path], features: Sequence[str]) -> dict[str, Spans]:
    """The first value of each of these bytes features in TFRecord files of tf.train.Example, a piece per record."""
    places: dict[str, list[tuple[int, int, int]]] = {name: [] for name in features}
    for which, file in enumerate(files):
        if not file.stat().st_size:
            raise DataError(f"{file} is empty (0 bytes); prepare the dataset again")
        with open(file, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for begin, end in _records(data, file):
                found = dict(bytes_features(data, begin, end))
                for name in features:
                    if name.encode() not in found:
                        raise DataError(f"{file}: a record without a bytes feature {name!r}")
                    first, last = found[name.encode()]
                    places[name].append((which, first, last - first))
    return {name: Spans(files, *np.array(rows, np.int64).reshape(-1, 3).T) for name, rows in places.items()}


def _records(data: mmap.mmap, file: Path) -> Iterator[tuple[int, int]]:
    """(begin, end) of each record: a length (8 bytes, little end first), its checksum (4), the record, its checksum."""
    at = 0
    while at < len(data):
        begin = at + 12
        end = begin + int.from_bytes(data[at : at + 8], "little")
        at = end + 4
        if at > len(data):
            raise DataError(f"{file} is cut short or no TFRecord file; prepare the dataset again")
        yield begin, end


def bytes_features(data: mmap.mmap | bytes, begin: int, end: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """(name, (begin, end)) of the first value of each bytes feature of a serialised tf.train.Example.

    Example {1: Features {1: entry {1: name, 2: Feature {1: BytesList {1: value}}}}}, in protocol-buffer wire format.
    """
    for _, *features in _fields(data, begin, end):
        for _, *entry in _fields(data, *features):
            name, value = b"", None
            for number, first, last in _fields(data, *entry):
                if number == 1:
                    name = data[first:last]
                else:
                    kinds = [(first, last) for kind, first, last in _fields(data, first, last) if kind == 1]
                    value = next((place for one in kinds for _, *place in _fields(data, *one)), None)
            if value is not None:
                yield name, (value[0], value[1])


def _fields(data: mmap.mmap | bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, begin, end) of the length-delimited fields of a message; an Example has no others down to its values."""
    while begin < end:
        tag, begin = _varint(data, begin)
        if tag & 7 != 2:
            raise DataError(f"not a tf.train.Example (wire type {tag & 7} at byte {begin})")
        size, begin = _varint(data, begin)
        yield tag >> 3, begin, begin + size
        begin += size


def _varint(data: mmap.mmap | bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def of_lines(file: Path) -> Spans:
    """The lines of a UTF-8 text, one piece each, without their line ends (LF or CR LF) and without a byte-order mark.

    Only a line feed ends a line: U+2028, form feeds and their like stay inside. DataError for an empty file and for one
    that is not UTF-8.
    """
    size = file.stat().st_size
    if not size:
        raise DataError(f"{file} is empty (0 bytes)")
    with open(file, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        ends = [size] * (data[size - 1] != 10)  # the last line need not be ended
        decoder = codecs.getincrementaldecoder("utf-8")()
        found = []
        for at in range(0, size, _BLOCK):
            block = data[at : at + _BLOCK]
            found.append(at + np.flatnonzero(np.frombuffer(block, np.uint8) == 10))
            try:
                decoder.decode(block, final=at + _BLOCK >= size)
            except UnicodeDecodeError as error:
                line = sum(map(len, found[:-1])) + block.count(b"\n", 0, error.start) + 1
                raise DataError(
                    f"{file} is not UTF-8 (line {line}: {error.reason}); convert it, as with iconv -f latin1 -t utf-8"
                ) from None
        stops = np.concatenate([*found, np.array(ends, np.int64)])
        begins = np.concatenate([[0], stops[:-1] + 1])
        if data[:3] == codecs.BOM_UTF8:
            begins[0] = 3
        carriage = (stops > begins) & (np.frombuffer(data, np.uint8)[stops - 1] == 13)
    return Spans([file], np.zeros(len(stops), np.int64), begins, stops - begins - carriage)


def of_segments(file: Path) -> Spans:
    """The texts between <seg ...> and </seg> of a WMT .sgm file, in the order of the file. They stay escaped."""
    data = file.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 (byte {error.start}: {error.reason})") from None
    places = [match.span(1) for match in re.finditer(rb"<seg\b[^>]*>(.*?)</seg>", data, re.DOTALL | re.IGNORECASE)]
    if not places:
        raise DataError(f"{file} holds no <seg> ... </seg>")
    begins, ends = np.array(places, np.int64).T
    return Spans([file], np.zeros(len(places), np.int64), begins, ends - begins)
