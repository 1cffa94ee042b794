"""Files in archives, read forwards and never unpacked: what arrives from strangers can neither escape nor overflow.

    tar, also compressed with gzip, bzip2 or xz; zip; one file compressed with gzip, bzip2 or xz

What an archive is shows in its first bytes, not in its name. A member is given whole or not at all, and nothing is
ever written. Left out and counted in the notes: members that are not plain files (links, devices, sparse files), whose
names lead out of the archive, that are too large, encrypted or damaged. An archive that breaks off or that expands too
far is read up to there: what came before is given, since each member is checked by itself, and the note begins with
'kept'. Who cannot use half an archive looks for it with `broken`.
"""

import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_IFMT, S_ISREG
from typing import BinaryIO

from tasks.build.flow import CHUNK, FAULTS, MEBI, Flow, Limit, TooFar, expanded, guarded
from tasks.build.source import Notes

DIRECTORY = 64 * MEBI  # a zip's list of members, which zipfile holds in memory
BLOCK = 512  # of a tar
LIMIT = Limit()

NO_ARCHIVE = ("archives", "of no known kind")  # what is noted of other files


class Unusable(Exception):
    """A member cannot be given; the message says why, in the words of the notes."""


def members(
    place: str | Path | BinaryIO,
    notes: Notes,
    limit: Limit = LIMIT,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of each file in the archive, in its order; a single compressed file has the archive's own name.

    place   a path, or a buffered file that can be read and sought in
    wanted  says by its name whether a member is looked at; what is not wanted is the caller's to count

    Names are relative, with '/'; the same one may come twice. Raises nothing for what it finds.
    """
    yield from guarded(_whole(place, notes, limit, wanted), notes)


def _whole(place: str | Path | BinaryIO, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, bytes]]:
    for name, parts in pieces(place, notes, limit, wanted):
        try:
            data = b"".join(parts)
        except Unusable as error:
            notes["files", str(error)] += 1
        else:
            yield name, data


def broken(notes: Notes) -> bool:
    """Whether the notes of one archive say that it was not read to its end."""
    return any(what == "archives" for what, _ in notes)


def pieces(
    place: str | Path | BinaryIO,
    notes: Notes,
    limit: Limit = LIMIT,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """`members` with contents in pieces, for files too large for the memory; to be read before the next one is asked.

    Raises FAULTS for damage, TooFar, and, from the pieces, Unusable.
    """
    if isinstance(place, str | Path):
        with open(place, "rb") as file:
            yield from _pieces(file, os.fspath(place), notes, limit, wanted)
    else:
        yield from _pieces(place, str(getattr(place, "name", "")), notes, limit, wanted)


def _pieces(raw: BinaryIO, name: str, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, Iterator[bytes]]]:
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


def _is_tar(block: bytes) -> bool:
    """Whether a tar begins so: its checksum is right. (A tar of nothing begins with zeros, and no text does.)"""
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
        return True
    except tarfile.HeaderError:
        return False
    return True


def _tar(flow: Flow, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, Iterator[bytes]]]:
    archive = tarfile.TarFile(fileobj=flow)  # type: ignore[arg-type]
    while info := archive.next():
        archive.members.clear()  # type: ignore[attr-defined] # it would remember all of them
        if info.isdir():
            continue
        if info.islnk() or info.issym():
            notes["links", "in archives"] += 1
        elif not info.isreg() or info.issparse():
            notes["files", "that are not plain files"] += 1
        elif (name := _inside(info.name, notes)) and wanted(name):
            if info.size > limit.member:
                notes["files", limit.over] += 1
            else:
                yield name, _of_tar(flow, info)
    # tarfile takes a bad header, or half of one, for the end; the real one is a block of zeros, or nothing at all.
    if flow.header.strip(b"\0"):
        raise tarfile.ReadError("a bad header")
    while flow.take(CHUNK):  # to where a compressed stream holds its checksum
        pass


def _of_tar(flow: Flow, info: tarfile.TarInfo) -> Iterator[bytes]:
    flow.seek(info.offset_data)
    left = info.size
    while left:
        part = flow.take(min(left, CHUNK))
        if not part:
            raise EOFError("the archive breaks off")
        left -= len(part)
        yield part


def _single(flow: Flow, name: str, notes: Notes, limit: Limit, wanted) -> Iterator[tuple[str, Iterator[bytes]]]:
    def parts() -> Iterator[bytes]:
        while part := flow.take(CHUNK):
            if flow.tell() > limit.member:
                raise Unusable(limit.over)
            yield part

    if (inner := _inside(name or "file", notes)) and wanted(inner):
        yield inner, parts()


def _zip(raw: BinaryIO, notes: Notes, limit: Limit, most: int, wanted) -> Iterator[tuple[str, Iterator[bytes]]]:
    total = 0
    with zipfile.ZipFile(_Bounded(raw)) as archive:  # type: ignore[arg-type]
        for info in archive.infolist():
            kind = S_IFMT(info.external_attr >> 16)
            if info.filename.endswith("/"):
                continue
            if kind and not S_ISREG(kind):
                notes["links", "in archives"] += 1
            elif (name := _inside(info.filename, notes)) and wanted(name):
                if info.flag_bits & 1:
                    notes["files", "encrypted"] += 1
                elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    notes["files", "compressed in a way that is not read"] += 1
                elif info.file_size > limit.member:
                    notes["files", limit.over] += 1
                elif (total := total + info.file_size) > most:
                    raise TooFar
                else:
                    yield name, _of_zip(archive, info)


def _of_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    left = info.file_size
    try:
        with archive.open(info) as member:
            while part := member.read(CHUNK):
                left -= len(part)
                yield part
    except FAULTS:
        left = -1
    if left:  # the others can be read all the same
        raise Unusable("damaged in an archive")


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
