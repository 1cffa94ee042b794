"""arXiv: papers as LaTeX, from where arXiv's bulk access puts them or from submissions that one has already.

    a bulk tar, or folders of such     its members are called 1001/1001.0001.gz, 1001/1001.0002.pdf and so on
    a folder of submissions            files such as 1001.0001.gz, 1001.0001v2.tar.gz, 1001.0002.pdf, paper.tex
    a folder of folders                one paper each, unpacked
    a folder with train/, validation/ and test/ of these; their split is kept

One paper is one document (`tasks.build.submission`, `tasks.build.paper`). All versions of a paper are one group.

The papers of Memorizing Transformers are "articles labelled Mathematics", which takes arXiv's metadata to know; all of
a paper's categories count here. Their LaTeX stands as it is, comments included: nothing is said of leaving them out.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from tasks.build import folders
from tasks.build.archives import members
from tasks.build.flow import MEBI, Limit
from tasks.build.paper import ENDINGS
from tasks.build.snapshot import Snapshot, snapshot
from tasks.build.source import Document, Notes, Unit, option
from tasks.build.submission import of_file, of_folder
from tasks.task import SPLITS, DataError

ARCHIVES = (".tar", ".gz", ".tgz", ".zip", ".bz2", ".xz")
PAPERS = (*ARCHIVES, ".pdf", *ENDINGS)
SUBMISSION = 128 * MEBI  # bytes of one, packed
BULK = Limit(member=SUBMISSION, total=1 << 50)

# What a submission's file is called: its number, before April 2007 with its archive, and perhaps a version.
_FILE = re.compile(r"(?:.*/)?(?:(\d{4}\.\d{4,5})|([a-z-]+)(?:\.[A-Z]{2})?/?(\d{7}))(v\d+)?(?:\.[A-Za-z0-9]{2,4})*")


@dataclass(frozen=True)
class Arxiv:
    """Papers as LaTeX."""

    metadata: str = option("", "arXiv's metadata snapshot, JSON lines; without it every paper is taken")
    categories: str = option("math", "with metadata: wanted categories, or archives of them, separated by commas")
    primary: bool = option(False, "with metadata: only the first category of a paper counts")
    strip: bool = option(False, "leave out TeX's comments and what \\iffalse skips, which are kept otherwise")

    name: ClassVar[str] = "arxiv"
    files: ClassVar[tuple[str, ...]] = ("metadata",)

    def units(self, path: str, notes: Notes) -> list[Unit]:
        """Submissions, bulk tars and folders of papers at `path`."""
        top = Path(path).expanduser()
        if not top.exists():
            raise DataError(f"arxiv: no file or directory at {path}")
        if known := self._known():
            notes.update(known.notes)
        if top.is_file():
            return [Unit(top.name, str(top), top.stat().st_size)]
        splits = [split for split in SPLITS if (top / split).is_dir()]
        for entry in os.scandir(top) if splits else ():
            if entry.name not in splits:
                notes["entries", f"beside {', '.join(splits)}"] += 1
        found = [unit for split in splits or [""] for unit in _units(top / split, split, notes)]
        if not found:
            raise DataError(
                f"arxiv: no paper in {path}; wanted are arXiv's bulk tars, submissions ({', '.join(PAPERS)}), or "
                "folders that hold the .tex files of one paper each, perhaps in train/, validation/ and test/"
            )
        return sorted(found)

    def read(self, unit: Unit, notes: Notes) -> Iterator[Document]:
        """The papers of a unit: one, or those of a bulk tar."""
        known = self._known()
        for name, read in _papers(unit, notes):
            number, version = _number(name)
            if known and number not in known.licences:
                notes["papers", "of other categories, or not in the metadata"] += 1
            elif found := read(notes, self.strip):
                text, parts = found
                yield Document(
                    name=number + version or _stem(name),
                    text=text,
                    licence=known.licences[number] if known else "",
                    source=f"arXiv:{number}{version}" if number else name,
                    group=f"arXiv:{number}" if number else "",
                    parts=parts,
                    split=next((part for part in unit.name.split("/")[:-1] if part in SPLITS), ""),
                )

    def _known(self) -> Snapshot | None:
        wanted = tuple(one.strip() for one in self.categories.split(","))
        return snapshot(self.metadata, wanted, self.primary) if self.metadata else None


def _units(top: Path, path: str, notes: Notes) -> Iterator[Unit]:
    """Units below a folder, whose path from the source's root on is `path`."""
    for entry in folders.entries(top, notes):
        name = f"{path}/{entry.name}" if path else entry.name
        if entry.name.startswith("."):
            notes["entries", "hidden"] += 1
        elif entry.is_symlink() and not entry.is_file():
            notes["links", "in folders"] += 1
        elif entry.is_dir():
            inside = list(folders.files(entry.path, Counter()))
            if any(_ends(file, ARCHIVES) for file, _ in inside) and not any(_ends(file, ENDINGS) for file, _ in inside):
                yield from _units(Path(entry), name, notes)
            else:
                yield Unit(name, entry.path, sum(folders.size(file) for _, file in inside))
        elif entry.is_file() and _ends(name, PAPERS):
            yield Unit(name, entry.path, folders.size(entry.path))
        else:
            notes["files", "beside the papers"] += 1


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().endswith(endings)


def _papers(unit: Unit, notes: Notes) -> Iterator[tuple[str, Callable[[Notes, bool], tuple[str, int] | None]]]:
    """(name, what reads it) of each paper of a unit."""
    if os.path.isdir(unit.place):
        yield unit.name, partial(of_folder, unit.place)
    elif _ends(unit.name, (".tar",)) and _is_bulk(unit.place):
        for name, data in members(unit.place, notes, BULK):
            yield f"{unit.name}/{name}", partial(of_file, name, data)
    elif (packed := folders.content(unit.place, notes, SUBMISSION)) is None:
        notes["papers", "unreadable"] += 1
    else:
        yield unit.name, partial(of_file, unit.name, packed)


def _is_bulk(place: str) -> bool:
    """Whether a tar holds submissions: its first file is called as one. (A submission holds files of other names.)"""
    first, _ = next(members(place, Counter()), ("", b""))
    return _FILE.fullmatch(first) is not None and _ends(first, PAPERS)


def _number(name: str) -> tuple[str, str]:
    """(arXiv's number of a paper, version or '') by its file's name; '' and '' if that is none."""
    found = _FILE.fullmatch(name)
    if not found:
        return "", ""
    new, archive, old, version = found.groups()
    return new or f"{archive}/{old}", version or ""


def _stem(name: str) -> str:
    """The path without the endings of an archive or of TeX."""
    while _ends(name, PAPERS):
        name = name.rpartition(".")[0]
    return name
