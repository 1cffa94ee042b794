"""Software projects, wherever they lie: folders, bare clones, archives, JSON lines, BigQuery exports.

At the top of a source, and in every folder below that holds nothing but such things, each of these is a project:

    a folder with files in it, or with a working tree's .git
    a bare clone                 HEAD, objects/ and refs/; its newest commit
    an archive                   .tar, also .gz, .bz2 or .xz, or .zip
    <name>.jsonl, .jsonl.gz      one {"path", "text"} a line, a file each
    .json, .json.gz              an export of GitHub's public data set, with many repositories (`tasks.build.exports`)
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.build import archives, clones, exports, folders
from tasks.build.source import Notes, Unit
from tasks.build.text import decode
from tasks.task import DataError
from tasks.texts import project_files

ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tbz2", ".txz", ".zip")
LINES = (".jsonl", ".jsonl.gz")
MOST = 64 * 2**20  # bytes of a file
DEPTH = 4  # folders below a source's top that may hold projects: <host>/<owner>/<name>

Files = Iterator[tuple[str, str]]  # path in the project, text


class Damaged(Exception):
    """A project of which an unknown part is lost; the message completes 'documents ...'."""


@dataclass(frozen=True)
class Project:
    """A project and its files, which are read as they are gone through.

    licence  what a catalogue says of it, None if none does
    origin   where it is from, for people
    """

    name: str
    files: Files
    licence: str | None = None
    origin: str = ""


def find(path: str, notes: Notes) -> list[Unit]:
    """What holds projects at `path`, which may be one itself, by name."""
    top = Path(path).expanduser()
    if not top.exists():
        raise DataError(f"github: nothing at {path}")
    if not top.is_dir() or clones.is_clone(top) or (top / ".git").exists():
        return [_unit(top.resolve().name, top)]
    return sorted(_below(top, "", DEPTH, notes))


def _below(folder: Path, name: str, depth: int, notes: Notes) -> Iterator[Unit]:
    for entry in folders.entries(folder, notes):
        path = Path(entry.path)
        inner = f"{name}{entry.name}"
        if entry.is_symlink():
            notes["links", "in folders"] += 1
        elif entry.name.startswith("."):
            notes["entries", "hidden"] += 1
        elif entry.is_dir():
            if depth and not clones.is_clone(path) and _holds_projects(path):
                yield from _below(path, f"{inner}/", depth - 1, notes)
            else:
                yield _unit(inner, path)
        elif _is_project(path):
            yield _unit(inner, path)
        else:
            notes["entries", "other than projects"] += 1


def _is_project(file: Path) -> bool:
    return file.name.endswith((*ARCHIVES, *LINES)) or (file.name.endswith(exports.SUFFIXES) and exports.is_export(file))


def _holds_projects(folder: Path) -> bool:
    """Whether there is nothing in a folder but folders and what is a project by itself."""
    below = [Path(entry.path) for entry in folders.entries(folder, Counter())]
    return bool(below) and all(path.name != ".git" and (path.is_dir() or _is_project(path)) for path in below)


def _unit(name: str, place: Path) -> Unit:
    return Unit(name, os.fspath(place), _size(place))


def _size(place: Path) -> int:
    files = folders.files(os.fspath(place), Counter()) if place.is_dir() else [("", os.fspath(place))]
    return sum(folders.size(path) for _, path in files)


def projects(unit: Unit, notes: Notes, wanted: Callable[[str], bool]) -> Iterator[Project]:
    """The projects of a unit with their wanted files. Files raise Damaged where an unknown part of them is lost."""
    place = Path(unit.place)
    if place.name.endswith(exports.SUFFIXES) and place.is_file():
        for name, rows in exports.repositories(place, notes):
            first = next(rows)
            licence = first.get("license")
            files = _rows(first, rows, notes, wanted)
            yield Project(name, files, licence if isinstance(licence, str) else None, f"{unit.name}: {name}")
    elif place.is_dir() and clones.is_clone(place):
        yield Project(unit.name, _clone(unit.place, notes, wanted), origin=_commit(unit))
    elif place.is_dir():
        yield Project(unit.name, _folder(unit.place, notes, wanted), origin=unit.name)
    elif place.name.endswith(LINES):
        yield Project(unit.name, _lines(place, notes, wanted), origin=unit.name)
    else:
        yield Project(unit.name, _archive(place, notes, wanted), origin=unit.name)


def _rows(first: dict, rows: Iterator[dict], notes: Notes, wanted: Callable[[str], bool]) -> Files:
    for row in (first, *rows):
        path = row.get("path")
        if not isinstance(path, str) or not path:
            notes["files", "without a path"] += 1
        elif wanted(path):
            yield path, row["text"]


def _lines(place: Path, notes: Notes, wanted: Callable[[str], bool]) -> Files:
    try:
        yield from project_files(place, notes, wanted)
    except DataError:  # of a compressed file that breaks off
        raise Damaged("whose file is damaged") from None


def _archive(place: Path, notes: Notes, wanted: Callable[[str], bool]) -> Files:
    own: Notes = Counter()
    try:
        for name, data in archives.members(place, own, wanted=wanted):
            if (text := decode(data, own)) is not None:
                yield name, text
    finally:
        notes.update(own)
    if archives.broken(own):
        raise Damaged("whose archive cannot be read to its end")


def _folder(place: str, notes: Notes, wanted: Callable[[str], bool]) -> Files:
    for name, path in folders.files(place, notes):
        if name.startswith(".git/") or not wanted(name):
            continue
        data = folders.content(path, notes, MOST)
        if data is not None and (text := decode(data, notes)) is not None:
            yield name, text


def _clone(place: str, notes: Notes, wanted: Callable[[str], bool]) -> Files:
    try:
        for name, data in clones.files(place, notes, wanted, MOST):
            if (text := decode(data, notes)) is not None:
                yield name, text
    except clones.DamagedClone as error:
        raise Damaged(f"whose clone git cannot read ({error})") from None


def _commit(unit: Unit) -> str:
    try:
        return f"{unit.name}@{clones.commit(unit.place)}"
    except clones.DamagedClone:
        return unit.name
