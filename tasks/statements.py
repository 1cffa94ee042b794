"""Isabelle's statements, and where their names are used: what section 4.6 of Memorizing Transformers looks at.

The paper asks, where a lemma is named, whether the model retrieved the lemma's body. The rule here:

    a statement  is what a command such as `lemma name: "..."`, `definition name ... where "..."` or `fun name ...` says
                 about its name: from behind the name to the proof, the next command or the next blank line. The name
                 is no part of it, so finding its letters again does not count.
    a mention    is the name as a whole word (also in name_def and name.simps) behind the statement, outside of comments
                 and explanations. If a name was stated several times, the last time before the mention counts.

Names of fewer than `LEAST` letters, which are often variables too, are left out.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass

LEAST = 3
_FACTS = ("lemma", "theorem", "corollary", "proposition", "schematic_goal")
_CONSTANTS = ("definition", "abbreviation", "fun", "function", "primrec", "primcorec", "partial_function", "inductive",
              "inductive_set", "coinductive", "coinductive_set", "datatype", "codatatype", "type_synonym", "record",
              "locale", "class")  # fmt: skip
_PROSE = ("text", "txt", "text_raw", "chapter", "section", "subsection", "subsubsection", "paragraph")
_ENDS = (*_FACTS, *_CONSTANTS, *_PROSE, "proof", "by", "apply", "using", "unfolding", "supply", "including", "sorry",
         "oops", "done", "termination", "end", "context", "begin", "declare", "lemmas", "notation", "no_notation",
         "interpretation", "sublocale", "instance", "instantiation", "theory", "ML", "hide_const", "hide_fact",
         "export_code", "private", "qualified")  # fmt: skip
_NAME = r"([A-Za-z][\w']*)"
_FACT = rf"(?:{'|'.join(_FACTS)})\b\s*(?:\([^()]*\)\s*)?{_NAME}(?=\s*[:\[])"
# A definition without a name beside it is called as in its equation: definition "name x = ...".
_CONSTANT = rf"(?:{'|'.join(_CONSTANTS)})\b\s*(?:\([^()]*\)\s*)?(?:\(?'\w+(?:\s*,\s*'\w+)*\)?\s+)?\"?{_NAME}"
_BEGIN = re.compile(rf"^[ \t]*(?:(?:private|qualified)\s+)?(?:{_FACT}|{_CONSTANT})", re.MULTILINE)
# Quoted propositions are stepped over; groups are what ends a statement.
_END = re.compile(
    rf"\"[^\"]*\"|\\<open>.*?\\<close>|‹[^›]*›|(\n[ \t]*\n)|(?<![\w.'])({'|'.join(_ENDS)})\b(?!\s*:)", re.DOTALL
)
_WORD = re.compile(rf"(?<![\w'.<]){_NAME}")
_DERIVED = re.compile(r"_defs?$")
_UNREAD = re.compile(rf"\(\*|\b(?:{'|'.join(_PROSE)})\s*(?:\\<open>|‹|\{{\*)")
_PAIRS = {"(*": "*)", "\\<open>": "\\<close>", "‹": "›", "{*": "*}"}


@dataclass(frozen=True)
class Statement:
    """What is stated about a name: characters `start` to before `stop`; the name itself begins at `place`."""

    name: str
    place: int
    start: int
    stop: int


@dataclass(frozen=True)
class Mention:
    """A name that is used, characters `start` to before `stop`, and what was stated about it before."""

    start: int
    stop: int
    statement: Statement


def statements(text: str) -> list[Statement]:
    """The statements of a document, in its order."""
    plain, found = without_comments(text), []
    for match in _BEGIN.finditer(plain):
        group = match.lastindex or 0
        quoted = plain[match.start(group) - 1] == '"'  # then the name is inside of what is stepped over
        after = match.start(group) - 1 if quoted else match.end()
        ends = (end.start() for end in _END.finditer(plain, after) if end.lastindex)
        stop = next(ends, len(plain))
        if len(match[group]) >= LEAST and plain[match.end() : stop].strip():
            found.append(Statement(match[group], match.start(group), match.end(), stop))
    return found


def mentions(text: str) -> list[Mention]:
    """Every use of a stated name behind its statement, in the order of the document."""
    known: dict[str, list[Statement]] = {}
    for one in statements(text):
        known.setdefault(one.name, []).append(one)
    named = {one.place for several in known.values() for one in several}
    found = []
    for word in _WORD.finditer(without_comments(text)):
        name = word[1] if word[1] in known else _DERIVED.sub("", word[1])
        before = bisect_right([one.stop for one in known.get(name, ())], word.start())
        if before and word.start() not in named:
            found.append(Mention(word.start(), word.start() + len(name), known[name][before - 1]))
    return found


def without_comments(text: str) -> str:
    """The text with blanks for comments and explanations; every other character keeps its place."""
    pieces, at = [], 0
    while begin := _UNREAD.search(text, at):
        opening = next(one for one in _PAIRS if begin[0].endswith(one))
        stop = _close(text, begin.end(), opening, _PAIRS[opening])
        pieces += [text[at : begin.start()], re.sub(r"[^\n]", " ", text[begin.start() : stop])]
        at = stop
    return "".join([*pieces, text[at:]])


def _close(text: str, at: int, opening: str, closing: str) -> int:
    """Where the bracket that was opened before `at` has been closed; brackets nest."""
    depth = 1
    for bracket in re.compile(f"{re.escape(opening)}|{re.escape(closing)}").finditer(text, at):
        depth += 1 if bracket[0] == opening else -1
        if not depth:
            return bracket.end()
    return len(text)


def by_chance(entries: int, inside: int, drawn: int) -> float:
    """Probability that `drawn` of `entries`, drawn without replacement, meet one of the `inside` ones."""
    missed = 1.0
    for n in range(min(drawn, entries)):
        missed *= max(0, entries - inside - n) / (entries - n)
    return 1.0 - missed
