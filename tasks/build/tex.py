r"""One LaTeX file, looked through as far as it takes to know what it reads in, where it ends and what is a comment.

This is no TeX: macros are not expanded. Text in \verb and in environments that show or skip their contents (verbatim,
Verbatim, lstlisting, minted, filecontents, comment) reads nothing in and has no comments. From \iffalse to its \else or
\fi nothing is read in either, as far as the file shows which commands are conditionals; those of other files are not.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Where one file reads in another: {name}, "name" or, in plain TeX's way, a bare name; two arguments for the import
# package. Every repetition is bounded, so that no text, however odd, takes more than time in proportion to its length.
_INPUT = r"""(?P<input>input|include|subfile|subfileinclude)(?![A-Za-z@])
    (?:\s{0,9}\{(?P<braced>[^{}\n]{0,999})\} | \s{0,9}"(?P<quoted>[^"\n]{0,999})"
      | [ \t]{1,9}(?P<bare>[^\s\\{}%"\#]{1,999}))?"""
_IMPORT = r"""(?P<import>(?:sub)?(?:import|inputfrom|includefrom))\*?\s{0,9}
    \{(?P<folder>[^{}\n]{0,999})\}\s{0,9}\{(?P<file>[^{}\n]{0,999})\}"""
_TOKEN = re.compile(
    rf"""\\(?:
      [\\%]                                                                   # an escaped character
    | begin\s{{0,9}}\{{(?:(?P<begin>document)|(?P<verbatim>(?:[BL]?Verbatim|verbatim|lstlisting|minted|filecontents|
      comment)\*?))\}}
    | (?:verb|lstinline(?:\[[^]\n]{{0,999}}\])?)\*?(?P<mark>[^A-Za-z\s*{{\[])
    | (?:url|path|href|nolinkurl)\s{{0,9}}\{{[^{{}}\n]{{0,999}}\}}            # where % is a character like others
    | {_INPUT} | {_IMPORT}
    | document(?P<class>class|style)\s{{0,9}}(?:\[[^]]{{0,4999}}\]\s{{0,9}})?\{{(?P<style>[^{{}}\n]{{0,999}})
    | (?P<end>end\s{{0,9}}\{{document\}}|endinput(?![A-Za-z@]))
    | (?P<plain>bye(?![A-Za-z@])|end\s{{0,9}}\Z)
    | (?P<false>iffalse)(?![A-Za-z@])
    )
    | (?P<comment>%[^\n]*)""",
    re.VERBOSE,
)
# Where a token may stand, since looking for it takes four times as long.
_LIKELY = re.compile(
    r"\\(?:[\\%]|begin\s|begin\{(?:document|[BL]?[vV]erb|lst|mint|file|comm)|verb|lstinline|url|path|href|nolink|input|incl|"
    r"sub[fi]|import|document|end(?:input|\s{0,9}(?:\{document|\Z))|bye|iffalse)|%"
)
# What opens, turns and closes a branch: TeX's own conditionals, those of LaTeX and of the usual packages, and new ones.
_CONDITIONALS = frozenset(
    ["if", "ifcat", "ifx", "ifnum", "ifdim", "ifodd", "ifvmode", "ifhmode", "ifmmode", "ifinner", "ifvoid", "ifhbox"]
    + ["ifvbox", "ifeof", "iftrue", "iffalse", "ifcase", "ifdefined", "ifcsname", "iffontchar", "ifincsname"]
    + ["ifprimitive", "ifpdf", "ifxetex", "ifluatex", "ifPDFTeX", "ifXeTeX", "ifLuaTeX"]
)
_BRANCH = re.compile(
    r"""\\(?:[\\%]
    | newif\s{0,9}\\(?P<new>if[A-Za-z@]{1,99})
    | let\s{0,9}\\(?P<let>if[A-Za-z@]{1,99})\s{0,9}=?\s{0,9}\\if(?:true|false)(?![A-Za-z@])
    | (?P<if>if[A-Za-z@]{0,99}) | (?P<else>else)(?![A-Za-z@]) | (?P<fi>fi)(?![A-Za-z@])) | %[^\n]*""",
    re.VERBOSE,
)
_REST = re.compile(r"\\fi[ \t]*(?:\n|\Z)")  # of a line that ends what is skipped
_DEFINES = re.compile(r"\{\s*$|\\(?:[egx]?def|newcommand|renewcommand|providecommand)(?![A-Za-z])")


@dataclass(frozen=True)
class Call:
    r"""A place that reads in another file.

    start, stop  the command's characters
    folder       the folder that \import and its like give, else ''
    name         the file as it is called there; None if TeX would compute it
    """

    start: int
    stop: int
    folder: str
    name: str | None


@dataclass(frozen=True)
class Outline:
    r"""What a file is made of.

    calls     where it reads in others, in its order
    end       characters up to and with \end{document} or \endinput, or all of them
    style     its document class, or ''
    begins    whether it has \begin{document}
    plain     whether it ends as plain TeX does, with \bye or \end
    """

    calls: tuple[Call, ...]
    end: int
    style: str
    begins: bool
    plain: bool


def outline(text: str) -> Outline:
    r"""The outline of a file, which is read up to its end, as by TeX.

    \end{document} in a definition, as in \def\ed{\end{document}}, ends nothing.
    """
    calls, style, begins, plain = [], "", False, False
    for kind, found in _tokens(text, _skipped(text)):
        if kind in ("input", "import"):
            calls.append(_call(found))
        elif kind == "class":
            style = style or found["style"].strip()
        elif kind == "begin":
            begins = True
        elif kind == "plain":
            plain = True
        elif kind == "end" and not _defined(text, found.start()):
            return Outline(tuple(calls), found.end(), style, begins, plain)
    return Outline(tuple(calls), len(text), style, begins, plain)


def _defined(text: str, at: int) -> bool:
    """Whether what stands at `at` is, as far as its line shows, part of a definition."""
    return bool(_DEFINES.search(text[max(0, at - 99) : at].rpartition("\n")[2]))


def without_comments(text: str) -> str:
    r"""The text without what TeX skips as a comment.

    A line that holds nothing but a comment goes as a whole. After other text the % stays, since it says that the line
    end is no space. The comment environment goes with its contents, and so does what \iffalse skips: with its
    lines, if these hold nothing else; otherwise the commands around it stay.
    """
    parts, at, skipped = [], 0, _skipped(text)
    for kind, found in _tokens(text, skipped):
        if kind == "comment":
            begin = found.start()
            line = text.rfind("\n", at, begin) + 1 or at
            alone = text[line:begin].isspace() or line == begin
            whole = alone and (line > at or at == 0 or text[at - 1] == "\n")
            parts.append(text[at : line if whole else begin + 1])
            at = min(found.end() + 1, len(text)) if whole else found.end()
        elif kind == "verbatim" and found["verbatim"].startswith("comment"):
            parts.append(text[at : found.start()])
            at = text.find("\\end{" + found["verbatim"] + "}", found.end()) + len(found["verbatim"]) + 6
        elif kind == "false":
            line, stop = text.rfind("\n", at, found.start()) + 1 or at, skipped[found.start()]
            rest = _REST.match(text, stop) if line > at or at == 0 or text[at - 1] == "\n" else None
            rest = rest if not text[line : found.start()].strip() else None
            parts.append(text[at : line if rest else found.end()])
            at = rest.end() if rest else stop
    parts.append(text[at:])
    return "".join(parts)


def _skipped(text: str) -> dict[int, int]:
    r"""Where each \iffalse that is closed begins -> where TeX reads on, at its \else or \fi."""
    spans: dict[int, int] = {}
    if "\\iffalse" not in text:
        return spans
    known, waiting = set(_CONDITIONALS), []  # (where a conditional begins that is not closed yet, whether it is false)
    for found in _BRANCH.finditer(text):
        name = found["if"]
        if new := found["new"] or found["let"]:
            known.add(new)
        elif name and (name in known or name.startswith("if@")):
            waiting.append((found.start(), name == "iffalse" and not _defined(text, found.start())))
        elif (found["else"] or found["fi"]) and waiting:
            begin, false = waiting[-1]
            if false:
                spans.setdefault(begin, found.start())
            if found["fi"]:
                waiting.pop()
    return spans


def _tokens(text: str, skipped: Mapping[int, int]) -> Iterator[tuple[str, re.Match[str]]]:
    """(kind, match) of what matters, in order, outside of verbatim and skipped text; the kinds are names of groups."""
    at, unclosed = 0, set()
    while likely := _LIKELY.search(text, at):
        found = _TOKEN.match(text, likely.start())
        if not found:
            at = likely.end()
            continue
        at, kind = found.end(), found.lastgroup
        if kind == "mark":
            at = text.find(found["mark"], at, at + 999) + 1 or at
        elif name := found["verbatim"]:
            end = -1 if name in unclosed else text.find("\\end{" + name + "}", at)
            if end < 0:  # never closed: TeX would complain; it is text like any other
                unclosed.add(name)
                continue
            at = end
            yield "verbatim", found
        elif kind == "false":
            if found.start() in skipped:
                at = skipped[found.start()]
                yield "false", found
        elif kind:
            yield next(one for one in _KINDS if found[one] is not None), found


_KINDS = ("comment", "input", "import", "class", "begin", "end", "plain")


def _call(found: re.Match[str]) -> Call:
    folder, name = "", found["braced"] or found["quoted"] or found["bare"]
    if found["import"]:
        folder, name = found["folder"].strip(), found["file"]
    name = (name or "").strip().strip('"')
    computed = not name or any(mark in folder + name for mark in "\\#~$")
    return Call(found.start(), found.end(), folder, None if computed else name)
