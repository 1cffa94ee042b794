"""Files in archives, read forwards and never unpacked: what arrives from strangers can neither escape nor overflow.

    tar, also compressed with gzip, bzip2 or xz; zip; one file compressed with gzip, bzip2 or xz

What an archive is shows in its first bytes, not in its name. A member is given whole or not at all, and nothing is
ever written. Left out and counted in the notes: members that are not plain files (links, devices, sparse files), whose
names lead out of the archive, that are too large, encrypted or damaged. An archive that breaks off or that expands too
far is read up to there: what came before is given, since each member is checked by itself, and the note begins with
'kept'. Who cannot use half an archive looks for it with `broken`.
"""

import bz2
import gzip
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_IFMT, S_ISREG
from typing import BinaryIO, TypeVar

from tasks.build.source import Notes

MEBI = 1 << 20
CHUNK = 1 << 18  # bytes read at a time where they are thrown away
HEADER = MEBI  # a header of a tar that is larger is no honest one
DIRECTORY = 64 * MEBI  # a zip's list of members, which zipfile holds in memory
DICTIONARY = 128 * MEBI  # memory that xz may ask for; its highest level asks for 65 MiB
BLOCK = 512  # of a tar

# What the standard library raises for archives that are damaged, or made to look so.
FAULTS = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, struct.error)
FAULTS += (NotImplementedError, RuntimeError, OverflowError, LookupError, TypeError)
T = TypeVar("T")
NO_ARCHIVE = ("archives", "of no known kind")  # what is noted of other files


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

    def of(self, size: int) -> int:
        """Bytes that an archive of `size` bytes may expand to."""
        return min(self.total, max(self.free, self.ratio * size))


class TooFar(Exception):
    """An archive expands further than its limit."""


def members(
    place: str | Path | BinaryIO,
    notes: Notes,
    limit: Limit = Limit(),
    wanted: Callable[[str], bool] = lambda name: True,
) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of each file in the archive, in its order; a single compressed file has the archive's own name.

    place   a path, or a buffered file that can be read and sought in
    wanted  says by its name whether a member is looked at; what is not wanted is the caller's to count

    Names are relative, with '/'; the same one may come twice. Raises nothing for what it finds.
    """
    yield from guarded(_opened(place, notes, limit, wanted), notes)


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
        except (RecursionError, MemoryError, *FAULTS) as error:
            # What the system says has a number; bad data, which gzip and bz2 report by the same class, have none.
            fault = "cannot be read" if isinstance(error, OSError) and error.errno else "are damaged"
        else:
            given += 1
            yield one
    notes["archives", f"kept up to where they {fault}" if given else f"that {fault}"] += 1


def broken(notes: Notes) -> bool:
    """Whether the notes of one archive say that it was not read to its end."""
    return any(what == "archives" for what, _ in notes)


def _opened(place: str | Path | BinaryIO, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, bytes]]:
    if isinstance(place, str | Path):
        with open(place, "rb") as file:
            yield from _members(file, os.fspath(place), notes, limit, wanted)
    else:
        yield from _members(place, str(getattr(place, "name", "")), notes, limit, wanted)


def _members(raw: BinaryIO, name: str, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, bytes]]:
    size = raw.seek(0, os.SEEK_END)
    raw.seek(0)
    head = raw.read(BLOCK)
    raw.seek(0)
    if not head:
        notes["archives", "empty"] += 1
    elif head.startswith((b"PK\3\4", b"PK\5\6")):
        yield from _zip(raw, notes, limit, limit.of(size), wanted)
    elif stream := expanded(raw, head):
        flow = Flow(stream, limit.of(size))
        if _is_tar(flow.peek(BLOCK)):
            yield from _tar(flow, notes, limit, wanted)
        else:
            yield from _single(flow, re.sub(r"\.[^./]*$", "", name.rsplit("/", 1)[-1]), notes, limit, wanted)
    elif _is_tar(head):
        yield from _tar(Flow(raw, limit.of(size)), notes, limit, wanted)
    else:
        notes[NO_ARCHIVE] += 1


def expanded(raw: BinaryIO, head: bytes):
    """A reader of what is compressed in `raw`; None if it is not compressed."""
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    return _Xz(raw) if head.startswith(b"\xfd7zXZ\0") else None


def _is_tar(block: bytes) -> bool:
    """Whether a tar begins so: its checksum is right. (A tar of nothing begins with zeros, and no text does.)"""
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.EOFHeaderError:
        return True
    except tarfile.HeaderError:
        return False
    return True


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


def _tar(flow: Flow, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, bytes]]:
    archive = tarfile.TarFile(fileobj=flow)  # type: ignore[arg-type]
    while info := archive.next():
        archive.members.clear()  # it would remember all of them
        if info.isdir():
            continue
        if info.islnk() or info.issym():
            notes["links", "in archives"] += 1
        elif not info.isreg() or info.issparse():
            notes["files", "that are not plain files"] += 1
        elif (name := _inside(info.name, notes)) and wanted(name):
            if info.size > limit.member:
                notes["files", f"over {limit.member // MEBI} MiB"] += 1
                continue
            flow.seek(info.offset_data)
            data = flow.take(info.size)
            if len(data) < info.size:
                raise EOFError
            yield name, data
    # tarfile takes a bad header, or half of one, for the end; the real one is a block of zeros, or nothing at all.
    if flow.header.strip(b"\0"):
        raise tarfile.ReadError("a bad header")
    while flow.take(CHUNK):  # to where a compressed stream holds its checksum
        pass


def _single(flow: Flow, name: str, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, bytes]]:
    if (inner := _inside(name or "file", notes)) and wanted(inner):
        data = flow.take(limit.member + 1)
        if len(data) > limit.member:
            notes["files", f"over {limit.member // MEBI} MiB"] += 1
        else:
            yield inner, data


def _zip(raw: BinaryIO, notes: Notes, limit: Limit, most: int, wanted) -> Iterator[tuple[str, bytes]]:
    expanded = 0
    with zipfile.ZipFile(_Bounded(raw)) as archive:  # type: ignore[arg-type]
        for info in archive.infolist():
            kind = S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                continue
            if kind and not S_ISREG(kind):
                notes["links", "in archives"] += 1
            elif (name := _inside(info.filename, notes)) and wanted(name):
                if info.flag_bits & 1:
                    notes["files", "encrypted"] += 1
                elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    notes["files", "compressed in a way that is not read"] += 1
                elif info.file_size > limit.member:
                    notes["files", f"over {limit.member // MEBI} MiB"] += 1
                elif (expanded := expanded + info.file_size) > most:
                    raise TooFar
                elif (data := _unzipped(archive, info)) is None:
                    notes["files", "damaged in an archive"] += 1
                else:
                    yield name, data


def _unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes | None:
    """The contents of a member, or None if they are damaged: the others can be read all the same."""
    try:
        with archive.open(info) as member:
            data = member.read(info.file_size + 1)
    except FAULTS:
        return None
    return data if len(data) == info.file_size else None


def _inside(name: str, notes: Notes) -> str | None:
    """A member's name as a relative path with '/', or None, which is noted, if it is none or leads out."""
    # A name that is not UTF-8 comes with half surrogates, which no file of ours can hold.
    path = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\\", "/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or re.match("[A-Za-z]:", path) or ".." in parts or "\0" in path:
        notes["files", "outside the archive"] += 1
    elif not parts:
        notes["files", "without a name"] += 1
    else:
        return "/".join(parts)
    return None


class _Bounded:
    """A file for zipfile, which reads a list of members at once: not if it is larger than DIRECTORY."""

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self.seek, self.tell = raw.seek, raw.tell

    def read(self, size: int = -1) -> bytes:
        if size > DIRECTORY:
            raise zipfile.BadZipFile(f"{size} bytes at once")
        return self._raw.read(size if size >= 0 else DIRECTORY)

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """The file is its opener's."""


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
