r"""A paper as it was handed in to arXiv: its TeX files out of a gzipped file, an archive or a folder, as one text.

What a submission is shows in its contents. Of its files, those that end in .tex, .ltx or .latex are read, and files
without ending that look like TeX; styles, bibliographies (.bbl, .bib), figures and all others are left out, and so are
arXiv's ancillary files (anc/) and hidden ones. A submission in a broken archive is left out: it may lack anything.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tasks.build import folders
from tasks.build.archives import NO_ARCHIVE, broken, members
from tasks.build.flow import MEBI, Limit
from tasks.build.paper import ENDINGS, Readme, one_text, readme
from tasks.build.source import Notes
from tasks.build.tex import without_comments
from tasks.build.text import decode

TEXTS = 64 * MEBI  # bytes of all TeX files of a paper
PACKED = Limit(member=TEXTS, total=1024 * MEBI)
STUB = 1000  # characters of a text that says no more than that the paper was withdrawn

_TEX = re.compile(rb"\\(?:document(?:class|style)|begin\s*\{|input|magnification|section|bye|def|font)(?![A-Za-z])")
_README = re.compile(r"00README(?:\.XXX|\.json)?")
_HIDDEN = re.compile(r"(?:^|/)(?:\.|__MACOSX/)")
_WITHDRAWN = re.compile(r"\s*%auto-ignore|(?i:.*\bwithdr(?:awn|ew)\b)", re.DOTALL)
_ENCODING = re.compile(
    rb"^[^%\n\r]*\\(?:usepackage\s*\[([^]]{1,40})\]\s*\{inputenc\}|inputencoding\s*\{([^}]{1,40})\})", re.MULTILINE
)
# How submissions begin that are no TeX.
_KINDS = {b"%pdf": "PDF only", b"%!": "PostScript only", b"<!doctype html": "HTML only", b"<html": "HTML only"}
# inputenc's names -> Python's.
_CODECS = {
    "latin1": "latin-1",
    **{f"latin{number}": f"iso8859-{part}" for number, part in {2: 2, 3: 3, 4: 4, 5: 9, 9: 15, 10: 16}.items()},
    "ansinew": "cp1252",
    "applemac": "mac-roman",
    "maccyr": "mac-cyrillic",
    "iso88595": "iso8859-5",
    **{name: name for name in ("cp1250", "cp1251", "cp1252", "cp1257", "cp437", "cp850", "cp852", "cp866")},
    **{name: name for name in ("koi8-r", "koi8-u")},
}


@dataclass
class Files:
    """A paper's files: TeX as bytes by path, the paths of the others, and what 00README says.

    kind  of what was looked at and is no TeX
    """

    tex: dict[str, bytes] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    says: Readme = field(default_factory=Readme)
    kind: str = "without TeX"
    size: int = 0  # bytes of the TeX files
    again: int = 0  # files whose path came again; as to tar, the last one counts

    def wants(self, name: str) -> bool:
        """Whether a file is to be read; if not, it is one of the others."""
        ending = re.search(r"\.[^./]*$", name)
        kept = not (_HIDDEN.search(name) or name.startswith("anc/")) and (not ending or ending[0].lower() in ENDINGS)
        wanted = self.size <= TEXTS and (kept or _README.fullmatch(name) is not None)
        if not wanted:
            self.others.add(name)
        return wanted

    def add(self, name: str, data: bytes) -> None:
        """A wanted file."""
        if _README.fullmatch(name):
            self.says = readme(data)
        elif name.lower().endswith(ENDINGS) or _TEX.search(data[:65536].replace(b"\0", b"")):  # also in UTF-16
            self.again += name in self.tex
            self.size += len(data) - len(self.tex.get(name, b""))
            self.tex[name] = data
        else:
            self.others.add(name)
            self.kind = _kind(data)


def of_folder(place: str, notes: Notes, strip: bool = False) -> tuple[str, int] | None:
    """(text, number of files in it) of the paper whose files lie in a folder; None, which is noted, if it has none.

    strip  without TeX's comments
    """
    found = Files()
    for name, file in folders.files(place, notes):
        if found.wants(name) and (data := folders.content(file, notes, TEXTS)) is not None:
            found.add(name, data)
    return _text(found, notes, strip)


def of_file(name: str, data: bytes, notes: Notes, strip: bool = False) -> tuple[str, int] | None:
    """The same of a submission, `data`: packed, or a TeX file, or something else."""
    found = Files()
    mine: Notes = Counter()
    for inner, content in members(io.BytesIO(data), mine, PACKED, found.wants):
        found.add(inner, content)
    if plain := mine.pop(NO_ARCHIVE, 0):
        found.add(name.rsplit("/", 1)[-1] if name.lower().endswith(ENDINGS) else "paper", data)
    notes.update(mine)
    if not plain and broken(mine):
        notes["papers", "in broken archives" if data else "empty"] += 1
        return None
    return _text(found, notes, strip)


def _text(found: Files, notes: Notes, strip: bool) -> tuple[str, int] | None:
    if found.others:
        notes["files", "of other kinds than TeX"] += len(found.others)
    if found.again:
        notes["files", "under a path that comes again"] += found.again
    if found.size > TEXTS:
        notes["papers", f"with over {TEXTS // MEBI} MiB of TeX"] += 1
        return None
    texts = {}
    codec = "latin-1" if all(map(_is_utf8, found.tex.values())) else _codec(found.tex.values())
    for name, data in found.tex.items():
        if text := decode(data, notes, otherwise=codec):
            texts[name] = without_comments(text) if strip else text
    reason = "" if texts else "without usable TeX" if found.tex else found.kind
    if len(texts) == 1:
        reason = _stub(*texts.values())
    text, parts = ("", 0) if reason else one_text(texts, notes, found.says, found.others)
    if not text.strip():
        notes["papers", reason or "empty"] += 1
        return None
    return text, parts


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _codec(files: Iterable[bytes]) -> str:
    """How files that are not UTF-8 are to be read: as one of them says to inputenc, or else as Latin-1."""
    for data in files:
        for found in _ENCODING.finditer(data[:65536]):
            name = (found[1] or found[2]).decode("latin-1").strip().lower()
            if name in _CODECS:
                return _CODECS[name]
    return "latin-1"


def _kind(data: bytes) -> str:
    """What a submission is that does not look like TeX."""
    head = data[:STUB].lower()
    return next((kind for mark, kind in _KINDS.items() if head.startswith(mark)), "") or (
        _stub(data.decode("latin-1")) or "without TeX"
    )


def _stub(text: str) -> str:
    return "withdrawn" if len(text) < STUB and _WITHDRAWN.match(text) else ""
