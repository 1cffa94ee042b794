"""Bytes that are read forwards and only so far: what is compressed by strangers may expand without end."""

import bz2
import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from tasks.build.source import Notes

MEBI = 1 << 20
CHUNK = 1 << 18  # bytes read at a time
HEADER = MEBI  # a header of a tar that is larger is no honest one
DICTIONARY = 128 * MEBI  # memory that xz may ask for; its highest level asks for 65 MiB

# What the standard library raises for archives that are damaged, or made to look so.
FAULTS: tuple[type[Exception], ...] = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
FAULTS += (EOFError, OSError, ValueError, NotImplementedError, RuntimeError, OverflowError, MemoryError)
T = TypeVar("T")


@dataclass(frozen=True)
class Limit:
    """How far an archive may expand, in bytes: one member, all of it, and all of it for each byte that it has itself.

    The ratio counts from `free` bytes on: a small file may well be a thousand times smaller still. TeX and programs
    are three to ten times smaller when compressed, and nothing honest two hundred times.
    """

    member: int = 64 * MEBI
    total: int = 16384 * MEBI
    ratio: int = 200
    free: int = 16 * MEBI

    @property
    def over(self) -> str:
        """Why a member is not given, for the notes."""
        return f"over {self.member // MEBI} MiB"

    def of(self, size: int) -> int:
        """Bytes that an archive of `size` bytes may expand to."""
        return min(self.total, max(self.free, self.ratio * size))


class TooFar(Exception):
    """An archive expands further than its limit."""


def guarded(found: Iterator[T], notes: Notes) -> Iterator[T]:
    """The same up to a fault in what is read, which is noted."""
    given, fault = 0, ""
    while not fault:
        try:
            one = next(found)
        except StopIteration:
            return
        except TooFar:
            fault = "expand too far"
        except FAULTS as error:  # a RecursionError is a RuntimeError
            # What the system says has a number; bad data, which gzip and bz2 report by the same class, have none.
            fault = "cannot be read" if isinstance(error, OSError) and error.errno else "are damaged"
        else:
            given += 1
            yield one
    notes["archives", f"kept up to where they {fault}" if given else f"that {fault}"] += 1


def expanded(raw: BinaryIO, head: bytes):
    """A reader of what is compressed in `raw`; None if it is not compressed."""
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    return _Xz(raw) if head.startswith(b"\xfd7zXZ\0") else None


class Flow:
    """A stream that goes forwards only, and only for `most` bytes: TooFar beyond. What tarfile asks of a file."""

    def __init__(self, stream, most: int):
        self._stream, self._most, self._at, self._ahead = stream, most, 0, b""
        self.header = b""  # what was last read for a header

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        """For headers; a larger one is refused before there is memory for it."""
        if not 0 <= size <= HEADER:
            raise ValueError(f"a header of {size} bytes")
        self.header = self.take(size)
        return self.header

    def take(self, size: int) -> bytes:
        """The next `size` bytes; fewer where the stream ends."""
        parts, left = [self._ahead[:size]], size - len(self._ahead[:size])
        self._ahead = self._ahead[size:]
        while left and (part := self._stream.read1(min(left, CHUNK))):
            parts.append(part)
            left -= len(part)
        self._count(size - left)
        return b"".join(parts)

    def some(self) -> bytes:
        """What comes next, some of it: `take` would lose what comes just before a fault. Empty at the end."""
        part, self._ahead = self._ahead or self._stream.read1(CHUNK), b""
        self._count(len(part))
        return part

    def _count(self, size: int) -> None:
        self._at += size
        if self._at > self._most:
            raise TooFar

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay."""
        self._ahead = self.take(size)
        self._at -= len(self._ahead)
        return self._ahead

    def seek(self, position: int) -> None:
        if position < self._at:
            raise ValueError("a header that points backwards")
        while self._at < position and self.take(min(CHUNK, position - self._at)):
            pass


class _Xz:
    """What lzma.LZMAFile does, but with a limit to its memory: a dictionary may be as large as its header says."""

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self._unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY)

    def read1(self, size: int) -> bytes:
        while not self._unpack.eof:
            data = self._raw.read(CHUNK) if self._unpack.needs_input else b""
            if self._unpack.needs_input and not data:
                raise EOFError("the stream breaks off")
            if part := self._unpack.decompress(data, size):
                return part
        return b""
