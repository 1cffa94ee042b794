r"""The LaTeX files of a paper as one text: the main file, with what it reads in standing where it is read.

Main is what 00README says ('toplevelfile'), in its order. Else it is, of the files that no other one reads in,

    that whose text, with what it reads, has a document class and \begin{document}; or else one of the two, or an end
    as in plain TeX; and among such the one that reads the most characters in; and then the first by path.
    Where none of them is, files that others read in are looked at too: they may read each other in a circle, of which
    the one with a document class of its own is main.

A file that begins with %auto-ignore, as arXiv's stubs do, or whose class is subfiles is no main file where there is
another. Where no file is one, the folder holds the parts of something: they stand one after the other by path, files
before sub-folders, each with what it reads in.

A file is looked for as TeX would if it were started in the paper's folder, or else in one of the folders on the way to
the file that names it. It stands where it is read in first; a second command for it stays as it is written, as do those
for files that are not there, that lie outside, that are no TeX, or whose names TeX would compute. What follows
\end{document} is left out. All of that is counted.
"""

import json
import posixpath
from collections.abc import Container, Mapping
from dataclasses import dataclass

from tasks.build.source import Notes
from tasks.build.tex import Call, Outline, outline

ENDINGS = (".tex", ".ltx", ".latex")
DEPTH = 15  # files that TeX has open at the same time


@dataclass(frozen=True)
class Readme:
    """What a 00README says: main files in its order, and files that are not to be looked at."""

    main: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()


def readme(data: bytes) -> Readme:
    """A 00README in arXiv's old form, lines of 'file use', or in its new one, JSON."""
    text = data.decode("utf-8", "replace")
    try:
        uses = [(one["filename"], one.get("usage")) for one in json.loads(text)["sources"]]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        uses = [(words[0], words[1]) for line in text.splitlines() if len(words := line.split()) == 2]
    uses = [(posixpath.normpath(str(file)), use) for file, use in uses]
    return Readme(
        tuple(dict.fromkeys(file for file, use in uses if use in ("toplevel", "toplevelfile"))),
        frozenset(file for file, use in uses if use == "ignore"),
    )


def one_text(
    files: Mapping[str, str], notes: Notes, says: Readme = Readme(), others: Container[str] = ()
) -> tuple[str, int]:
    """(text, how many files stand in it) of a paper's TeX files: path -> text, at least one.

    others  paths of the paper's other files, by which a command for one of them is told from one for none
    """
    paper = _Paper({name: files[name] for name in sorted(files, key=by_folder)}, others)
    main = [name for name in says.main if name in files] or paper.main(says.ignored)
    pieces = [paper.expand(name, (), notes) for name in main if name not in paper.placed]
    # Each begins on a line of its own.
    text = "".join(piece if piece.endswith("\n") else piece + "\n" for piece in pieces[:-1]) + pieces[-1]
    if unread := len(files) - len(paper.placed):
        notes["files", "not read by the main file"] += unread
    return text, len(paper.placed)


def by_folder(path: str) -> list[tuple[bool, str]]:
    """Key of the order by path in which a folder's files stand before its sub-folders."""
    parts = path.split("/")
    return [*((True, part) for part in parts[:-1]), (False, parts[-1])]


class _Paper:
    """Files of one paper, path -> text, in their order; what they read in; and which of them were placed so far."""

    def __init__(self, files: Mapping[str, str], others: Container[str]):
        self.files, self.others = files, others
        self.outlines: dict[str, Outline] = {name: outline(text) for name, text in files.items()}
        # For each command the file that it reads in and '', or '' and why there is none.
        self.targets = {name: [self._find(name, call) for call in found.calls] for name, found in self.outlines.items()}
        self.placed: set[str] = set()

    def main(self, ignored: Container[str]) -> list[str]:
        """The main file, or several where none is one."""
        read = {target for name, found in self.targets.items() for target, _ in found if target != name}
        tops = [name for name in self.files if name not in read] or list(self.files)
        tops = [name for name in tops if name not in ignored] or list(self.files)
        ranks = {name: self._rank(name) for name in tops}
        if not any(rank for rank, _ in ranks.values()):  # files that read each other in a circle are no tops
            ranks |= {name: self._rank(name) for name in self.files if name not in ignored}
        best = max(ranks, key=lambda name: (*ranks[name], bool(self.outlines[name].style)))  # of equals the first
        return [best] if ranks[best][0] else tops

    def _rank(self, name: str) -> tuple[int, int]:
        """(whether it looks like a main file: 2, 1 or 0; characters that it reads in)"""
        reached = [self.outlines[one] for one in self._reached(name)]
        size = sum(found.end for found in reached)
        if self.outlines[name].style == "subfiles" or self.files[name].lstrip().startswith("%auto-ignore"):
            return 0, size
        styles, begins, plain = (
            any(getattr(found, fact) for found in reached) for fact in ("style", "begins", "plain")
        )
        return 2 if styles and begins else int(styles or begins or plain), size

    def _reached(self, name: str) -> list[str]:
        """The file and all that it reads in, at whatever depth."""
        found = {name: True}
        queue = [name]
        while queue:
            for target, _ in self.targets[queue.pop()]:
                if target and target not in found:
                    found[target] = True
                    queue.append(target)
        return list(found)

    def expand(self, name: str, above: tuple[str, ...], notes: Notes) -> str:
        """A file's text with what it reads in. `above` are the files that are open while it is read."""
        text, found = self.files[name], self.outlines[name]
        self.placed.add(name)
        above, pieces, at = (*above, name), [], 0
        for call, (target, reason) in zip(found.calls, self.targets[name], strict=True):
            if target in self.placed:
                reason = "in a circle" if target in above else "repeated"
            elif target and len(above) == DEPTH:
                reason = f"over {DEPTH} deep"
            if reason:
                notes["inputs", reason] += 1
                continue
            inner = self.expand(target, above, notes)
            # The end of a file is a space to TeX; a line end more would be a paragraph.
            followed = text[call.stop : call.stop + 1] == "\n"
            inner = inner.removesuffix("\n") if followed or inner.endswith("\n") else inner
            pieces += [text[at : call.start], inner, "" if followed else "\n"]
            at = call.stop
        pieces.append(text[at : found.end])
        if text[found.end :].strip():
            notes["files", "kept up to where TeX stops reading"] += 1
        return "".join(pieces) + "\n" * (found.end < len(text))

    def _find(self, name: str, call: Call) -> tuple[str, str]:
        if call.name is None:
            return "", "computed by TeX"
        wanted = posixpath.join(call.folder, call.name)
        folders = name.split("/")[:-1]
        tries = [posixpath.normpath("/".join([*folders[:depth], wanted])) for depth in range(len(folders) + 1)]
        inside = [] if wanted.startswith("/") else [path for path in tries if path.split("/")[0] != ".."]
        # TeX adds its ending first, whatever the name ends with.
        paths = [path + ending for path in inside for ending in (".tex", "")]
        if target := next((path for path in paths if path in self.files), ""):
            return target, ""
        if any(path in self.others for path in paths):
            return "", "of what is no TeX"
        return "", "missing" if inside else "outside the paper"
