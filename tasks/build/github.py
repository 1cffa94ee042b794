"""GitHub: a document is a repository, all its code in one text (Memorizing Transformers, section 4.1).

The paper took permissively licensed repositories from BigQuery's public data set, and of each the files in C, C++,
Java, Python, Go and TypeScript, by their endings, in random order but with every sub-directory contiguous. So do we,
from whatever holds repositories (`tasks.build.projects`). What the paper leaves open is decided here:

    licence  that of the licence files at the repository's top, by their texts (`tasks.build.licences`), or the one that
             the export names if they do not say otherwise. Whatever is not permissive, or not recognised, is left out;
             so are sub-folders whose own licence files say otherwise. One in a sub-folder says nothing of the rest.
    files    generated, minified, and other projects' (vendored) code is left out, by the rules of `tasks.build.code`.
    text     files follow each other without any mark; each begins on a line of its own.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tasks.build import licences, projects
from tasks.build.code import is_code, is_licence, is_vendored, made_by_a_program, shuffled
from tasks.build.source import Document, Notes, Unit, option
from tasks.task import DataError
from tasks.texts import joined

# Folders that packages have for what is said of all of them: Python's metadata, Java's, and one called licenses.
OF_ALL = re.compile(r"(?:^|/)[^/]+\.(?:dist|egg)-info(?:$|/)|^(?:META-INF|licen[cs]es?)$", re.IGNORECASE)
UNKNOWN = "without a licence that is recognised"
UNFREE = "under a licence that is not permissive"


@dataclass(frozen=True)
class GitHub:
    name: ClassVar[str] = "github"

    seed: int = option(0, "of the order of a repository's files")
    keep_generated: bool = option(False, "keep generated, minified and vendored files")

    def units(self, path: str, notes: Notes) -> list[Unit]:
        found = projects.find(path, notes)
        if not found:
            raise DataError(f"github: no project in {path}; wanted are {WANTED}")
        return found

    def read(self, unit: Unit, notes: Notes) -> Iterator[Document]:
        def wanted(path: str) -> bool:
            if is_code(path) or is_licence(path):
                return True
            notes["files", "other than code"] += 1
            return False

        for project in projects.projects(unit, notes, wanted):
            try:
                if document := self._document(project, notes):
                    yield document
            except projects.Damaged as error:
                notes["documents", str(error)] += 1

    def _document(self, project: projects.Project, notes: Notes) -> Document | None:
        said: dict[str, set[str]] = {}  # folder -> the licences that its files hold
        code: dict[str, str] = {}
        paths: list[str] = []
        for path, text in project.files:
            paths.append(path)
            if is_licence(path):
                notes["files", "read as licences"] += 1
                if not is_vendored(path):
                    said.setdefault(_folder(path), set()).update(licences.detect(text))
            elif path in code:
                notes["files", "under a path seen before"] += 1
            elif reason := self._unwanted(path, text):
                notes["files", reason] += 1
            else:
                code[path] = text
        top, below = _governing(said, paths)
        if project.licence is not None:
            named = {licences.declared(project.licence)} - {""} or {project.licence}
            top = named | {one for one in top if not licences.permissive([one])}
        if not top:
            notes["documents", UNKNOWN] += 1
        elif not licences.permissive(top):
            notes["documents", UNFREE] += 1
        else:
            return self._joined(project, _permitted(code, below, notes), licences.expression(top), notes)
        return None

    def _unwanted(self, path: str, text: str) -> str:
        if not text.strip():
            return "empty"
        if self.keep_generated:
            return ""
        return "vendored" if is_vendored(path) else made_by_a_program(path, text)

    def _joined(self, project: projects.Project, code: dict[str, str], licence: str, notes: Notes) -> Document | None:
        if not code:
            notes["documents", "without code"] += 1
            return None
        order = shuffled(code, self.seed, project.name)
        text = joined([(path, code[path]) for path in order])
        return Document(project.name, text, licence, project.origin, parts=len(order))


WANTED = "folders, bare clones, archives (.tar.gz, .zip ...), .jsonl of path and text, or BigQuery's .json exports"


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _governing(said: dict[str, set[str]], paths: list[str]) -> tuple[set[str], dict[str, set[str]]]:
    """(licences of the whole, folder -> licences) of what each folder's files say.

    paths  of all files of the project that are read

    Of the whole speak files at the top, or in a folder that holds all others, as in archives, or that a package has for
    them; of these the nearest to the top.
    """
    common = posixpath.commonprefix([f"{_folder(path)}/" for path in paths])
    speaks = [folder for folder in said if not folder or common.startswith(f"{folder}/") or OF_ALL.search(folder)]
    least = min(map(_depth, speaks), default=0)
    speaks = [folder for folder in speaks if _depth(folder) == least]
    top: set[str] = set().union(*(said[folder] for folder in speaks))
    return top, {folder: found for folder, found in said.items() if folder not in speaks and _depth(folder) >= least}


def _depth(folder: str) -> int:
    return folder.count("/") + 1 if folder else 0


def _permitted(code: dict[str, str], below: dict[str, set[str]], notes: Notes) -> dict[str, str]:
    """The files that lie in no folder with licence files of its own that are not permissive."""
    closed = tuple(f"{folder}/" for folder, found in below.items() if not licences.permissive(found))
    kept = {path: text for path, text in code.items() if not (closed and path.startswith(closed))}
    if len(kept) < len(code):
        notes["files", UNFREE] += len(code) - len(kept)
    return kept
