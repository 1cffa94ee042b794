"""Isabelle: a document is an entry of the Archive of Formal Proofs, or a session of the distribution.

The theories of a document follow each other in the order of their imports, so that a lemma stands before the proofs
that use it (Memorizing Transformers, section 4.1; Focused Transformer, appendix H). Where imports leave it open, the
order is that of the ROOT file: its sessions, parents first, and the theories that each names; then all others by path.

A folder with a ROOT file is an entry, with all theories below it. If its sessions have folders of their own, as those
of the distribution have (`session "HOL-Library" in Library = HOL + ...`), each session is a document, except in the
archive, whose entries stay whole. A folder of theories without a ROOT file is an entry too, and noted.

Licences are read from the archive's metadata, or from the distribution's COPYRIGHT. Entries are kept whatever they say:
all of both may be used freely.
"""

import configparser
import contextlib
import functools
import os
import posixpath
import tomllib
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tasks.build import folders, licences, roots
from tasks.build.source import Document, Notes, Unit
from tasks.build.text import decode
from tasks.task import DataError
from tasks.texts import joined
from tasks.theories import Names, arranged, imports
from tasks.tokenised import told

MOST = 64 * 2**20  # bytes of a theory
# Of the distribution, known everywhere without a session's name.
GLOBAL = ("Pure", "Main", "Complex_Main", "HOL", "HOLCF", "ZF", "ZFC", "FOL", "CTT", "LCF", "CCL", "Cube", "Sequents")
BESIDE = "beside the entries"
WANTED = "wanted is a tree of the archive or of the distribution, whose theories end in .thy"
BSD, LGPL = "BSD-3-Clause", "LGPL-2.1-only"


@dataclass(frozen=True)
class Isabelle:
    name: ClassVar[str] = "isabelle"

    def units(self, path: str, notes: Notes) -> list[Unit]:
        top = Path(path).expanduser()
        if not top.is_dir():
            raise DataError(f"isabelle: no directory at {path}; {WANTED}")
        held: dict[str, int] = {}  # folder -> bytes of its theories
        with_root, others = set(), []  # folders; and folders of other files, one for each
        for name, place in folders.files(os.fspath(top), notes):
            folder, _, file = name.rpartition("/")
            if file == "ROOT":
                with_root.add(folder)
            elif file.endswith(".thy"):
                held[folder] = held.get(folder, 0) + folders.size(place)
            else:
                others.append(folder)
        entries: dict[str, int | None] = dict.fromkeys(with_root)  # None: without any theory
        for folder in sorted(held):
            entry = _nearest(folder, entries)
            if entry is None:
                entry = folder
                notes["entries", "kept without a ROOT file"] += 1
            entries[entry] = (entries.get(entry) or 0) + held[folder]
        found = {folder: size for folder, size in entries.items() if size is not None}
        beside = sum(_nearest(folder, entries) not in found for folder in others)
        for key, count in (("entries", "without theories"), len(entries) - len(found)), (("files", BESIDE), beside):
            if count:
                notes[key] += count
        if not found:
            seen = f" ({told(notes)})" if notes else ""
            raise DataError(f"isabelle: no theory in {path}{seen}; {WANTED}")
        return sorted(
            Unit(folder or top.resolve().name, os.fspath(top / folder), size) for folder, size in found.items()
        )

    def read(self, unit: Unit, notes: Notes) -> Iterator[Document]:
        files: dict[str, str] = {}
        for path, text in _theories(unit, notes):
            if path in files:  # names that are not UTF-8 may look the same
                notes["files", "under a path seen before"] += 1
            files.setdefault(path, text)
        tree = Tree(files, _sessions(unit, notes))
        for circle in tree.circles:
            notes["theories", f"kept in a circle of imports ({', '.join(circle)})"] += len(circle)
        for name in tree.missing(unit.place):
            if not _known(name):
                notes["imports", "of theories that are not there"] += 1
        licence = _licence(Path(unit.place))
        for name, paths in tree.documents(unit.name):
            if paths:
                text = joined([(path, files[path]) for path in paths])
                yield Document(name, text, licence, unit.name, parts=len(paths))
            else:
                notes["documents", "without theories"] += 1
        if tree.split and len(tree.owners) < len(files):
            notes["files", "in no session"] += len(files) - len(tree.owners)


class Tree:
    """The theories of an entry, by path from its folder on, and the sessions that share them.

    order    their paths, imported ones first
    circles  of imports, as the paths along them
    owners   path -> name of the session that the theory belongs to
    split    whether each session is a document
    """

    def __init__(self, files: dict[str, str], sessions: list[roots.Session]):
        self.sessions = _parents_first(sessions)
        self.split = any(one.folder for one in sessions) and all(one.chapter != "AFP" for one in sessions)
        wanted = {path: imports(text) for path, text in files.items()}
        self.owners = _owners(wanted, self.sessions)
        named = [path for session in self.sessions for path in _named(session, wanted)]
        listed = dict.fromkeys([*named, *sorted(wanted)])
        self.wanted = {path: wanted[path] for path in listed}
        self.order, self.circles = arranged(self.wanted, self.owners)

    def documents(self, name: str) -> Iterator[tuple[str, list[str]]]:
        """(name, paths of its theories in their order) of each."""
        if not self.split:
            yield name, self.order
            return
        for session in self.sessions:
            yield f"{name}/{session.name}", [path for path in self.order if self.owners.get(path) == session.name]

    def missing(self, place: str) -> Iterator[str]:
        """Imports that name no file of the entry, and none elsewhere in the tree that it lies in."""
        names = Names(list(self.wanted), self.owners)
        for path, held in self.wanted.items():
            for name in held:
                beside = posixpath.join(place, posixpath.dirname(path), f"{name}.thy")
                if names.find(name, path) is None and not ("/" in name and os.path.isfile(beside)):
                    yield name


def _known(name: str) -> bool:
    """Whether an import may be of a theory elsewhere: a global one, or one of another session or place by its name."""
    return name in GLOBAL or name.startswith(("~", "$")) or ("/" not in name and "." in name)


def _named(session: roots.Session, wanted: dict[str, list[str]]) -> list[str]:
    """The files that a session names in its ROOT."""
    places = [session.folder, *(posixpath.join(session.folder, one) for one in session.directories)]
    found = []
    for name in session.theories:
        paths = [posixpath.normpath(posixpath.join(place, f"{name}.thy")) for place in places]
        found += [path for path in paths if path in wanted][:1]
    return found


def _owners(wanted: dict[str, list[str]], sessions: list[roots.Session]) -> dict[str, str]:
    """The session of each theory: the first that names it, or that imports it from no other session's folder."""
    folders_of = {one.name: {_joined(one.folder, inner) for inner in ("", *one.directories)} for one in sessions}
    names, paths = Names(list(wanted), {}), list(wanted)
    owners: dict[str, str] = {}
    for session in sessions:
        others = set().union(*folders_of.values()) - folders_of[session.name]
        waiting = _named(session, wanted)
        while waiting:
            path = waiting.pop()
            if path in owners:
                continue
            owners[path] = session.name
            found = [names.find(name, path) for name in wanted[path]]
            needed = [paths[number] for number in found if number is not None]
            waiting += [one for one in needed if posixpath.dirname(one) not in others]
    return owners


def _joined(folder: str, inner: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, inner))
    return "" if path == "." else path


def _parents_first(sessions: list[roots.Session]) -> list[roots.Session]:
    """The sessions of a ROOT, each after those of them that it is built on."""
    by_name = {one.name: one for one in sessions}
    ordered: dict[str, roots.Session] = {}
    begun: set[str] = set()
    for first in sessions:
        stack = [first]  # a chain of sessions may be longer than Python's
        while stack:
            session = stack[-1]
            begun.add(session.name)
            above = (name for name in (session.parent, *session.sessions) if name in by_name and name not in begun)
            if name := next(above, ""):
                stack.append(by_name[name])
            else:
                ordered.setdefault(session.name, session)
                stack.pop()
    return list(ordered.values())


def _theories(unit: Unit, notes: Notes) -> Iterator[tuple[str, str]]:
    """(path, text) of the theories of an entry; folders below that have a ROOT file are entries of their own."""
    listed = list(folders.files(unit.place, Counter()))  # what is no file was noted when units were looked for
    inner = tuple(f"{name[:-4]}" for name, _ in listed if name.endswith("/ROOT"))
    for name, place in listed:
        if name == "ROOT" or (inner and name.startswith(inner)):
            continue
        if not name.endswith(".thy"):
            notes["files", "other than theories"] += 1
        elif (data := folders.content(place, notes, MOST)) is not None and (text := decode(data, notes)) is not None:
            yield name, text


def _sessions(unit: Unit, notes: Notes) -> list[roots.Session]:
    root = Path(unit.place) / "ROOT"
    data = folders.content(os.fspath(root), notes, MOST) if root.is_file() else None
    text = decode(data, notes, what="ROOT files") if data is not None else None
    return roots.sessions(text or "")


def _nearest(folder: str, entries: Container[str]) -> str | None:
    """The folder itself or the nearest above it that is an entry."""
    while folder and folder not in entries:
        folder = folder.rpartition("/")[0]
    return folder if folder in entries else None


def _licence(entry: Path) -> str:
    """SPDX identifier; '' if nothing says it."""
    for above in list(entry.resolve().parents)[:3]:
        if said := _archive(above / "metadata").get(entry.name):
            return LGPL if "lgpl" in said.lower() else BSD if "bsd" in said.lower() else ""
        if found := _copyright(above / "COPYRIGHT"):
            return found
    return ""


@functools.lru_cache(4)
def _archive(metadata: Path) -> dict[str, str]:
    """What the archive's metadata say of each entry: a file for each today, one for all until 2021."""
    said = {}
    for file in sorted((metadata / "entries").glob("*.toml")):
        with contextlib.suppress(OSError, ValueError, RecursionError):  # then nothing is known of that entry
            said[file.stem] = str(tomllib.loads(file.read_text()).get("license", ""))
    if not said:
        with contextlib.suppress(OSError, ValueError, configparser.Error):
            held = configparser.ConfigParser(interpolation=None, strict=False)
            held.read_string((metadata / "metadata").read_text())
            said = {name: held[name].get("license", "BSD") for name in held.sections()}
    return said


@functools.lru_cache(4)
def _copyright(file: Path) -> str:
    try:
        return licences.expression(licences.detect(file.read_text(errors="replace")))
    except OSError:
        return ""
