"""Isabelle's ROOT files: which sessions there are, where their theories lie, and in which order they are named.

    chapter AFP
    session Collections (AFP) in "Sub" = Refine_Monadic +
      sessions "HOL-Library" Trie
      directories "Lib"
      theories [document = false] "Lib/HashCode" "Trie.Trie"
      document_files "root.tex"

(Isabelle system manual, section 2.1.) What is no theory is stepped over.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"(?P<comment>\(\*)|(?P<open>\\<open>|‹|\{\*)|\"(?P<string>(?:[^\"\\]|\\.)*)\"|(?P<mark>[()\[\]=+,:])"
    r"|(?P<word>[^\s\"()\[\]=+,:‹›]+)",
    re.DOTALL,
)
_BRACKETS = re.compile(r"(\(\*|\\<open>|‹|\{\*)|(\*\)|\\<close>|›|\*\})")
# What begins a part of a session, and so ends the one before.
_PARTS = frozenset(
    ["description", "directories", "document_files", "document_theories", "export_classpath", "export_files"]
    + ["options", "sessions", "theories"]
)


@dataclass
class Session:
    """A session of a ROOT file.

    folder       of its theories, from the ROOT's own on; '' for that
    directories  further folders of theories, from `folder` on
    parent       the session that it is built on, '' for none
    theories     as they are named: files from `folder` on without '.thy', or theories of other sessions
    """

    name: str
    chapter: str = ""
    folder: str = ""
    parent: str = ""
    sessions: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    theories: list[str] = field(default_factory=list)


def sessions(text: str) -> list[Session]:
    """The sessions of a ROOT file, in its order. What does not fit the syntax is stepped over."""
    found: list[Session] = []
    chapter, part = "", ""
    tokens = list(_tokens(text))
    place = 0
    while place < len(tokens):
        kind, word = tokens[place]
        place += 1
        if (kind, word) == ("word", "chapter"):
            chapter, place, part = tokens[place][1] if place < len(tokens) else "", place + 1, ""
        elif (kind, word) == ("word", "session"):
            session, place = _head(tokens, place)
            session.chapter, part = chapter, ""
            found.append(session)
        elif kind == "word" and word in (*_PARTS, "chapter_definition"):
            part = word
        elif kind == "mark" and word in "([":
            place = _behind(tokens, place, word)
        elif kind != "mark" and found and part in ("sessions", "directories", "theories"):
            getattr(found[-1], part).append(word)
    return found


def _head(tokens: list[tuple[str, str]], place: int) -> tuple[Session, int]:
    """A session from its name to the '+' behind its parent, and where its parts begin."""
    session = Session(tokens[place][1] if place < len(tokens) else "")
    place += 1
    while place < len(tokens):
        kind, word = tokens[place]
        if kind == "mark" and word == "(":
            place = _behind(tokens, place + 1, word)
        elif (kind, word) == ("word", "in") and place + 1 < len(tokens):
            session.folder = tokens[place + 1][1].strip("/").removeprefix("./")
            session.folder = "" if session.folder == "." else session.folder
            place += 2
        elif kind == "mark" and word in "=+":
            place += 1
        elif kind != "mark" and word not in _PARTS and not session.parent and tokens[place - 1][1] == "=":
            session.parent, place = word, place + 1
        else:
            break
    return session, place


def _behind(tokens: list[tuple[str, str]], place: int, bracket: str) -> int:
    """Behind the bracket that closes the one before `place`."""
    closing = {"(": ")", "[": "]"}[bracket]
    while place < len(tokens) and tokens[place] != ("mark", closing):
        place += 1
    return place + 1


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """('word' | 'string' | 'mark', itself) of all that is no comment and no cartouche; a name may be a string."""
    place = 0
    while found := _TOKEN.search(text, place):
        place = found.end()
        if found["comment"] or found["open"]:
            place = _closed(text, place)
        else:
            kind = found.lastgroup or ""
            yield kind, found[kind]


def _closed(text: str, place: int) -> int:
    depth = 1
    while depth and (bracket := _BRACKETS.search(text, place)):
        depth += 1 if bracket[1] else -1
        place = bracket.end()
    return len(text) if depth else place
