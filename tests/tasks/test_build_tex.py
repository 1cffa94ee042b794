"""LaTeX: an outline equals that of a scanner that goes character by character, and papers are put together as told."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.build.paper import DEPTH, by_folder, one_text, readme
from tasks.build.tex import outline, without_comments
from tasks.build.text import decode

FUZZ = settings(max_examples=200, deadline=None, derandomize=True, database=None)
WORDS = [
    *("\\input{a}", "\\input a ", '\\input"a b"', "\\input\\x", "\\inputenc", "\\include{b}", "\\includegraphics{b}"),
    *("\\subimport{d}{c}", "\\import{d/}{e} ", "\\subfile{f}", "%", "\\%", "\\\\", "\\", "\n", " ", "x", "{", "}", "|"),
    *("\\verb|", "\\verb*+", "+", "\\begin{verbatim}", "\\end{verbatim}", "\\begin{comment}", "\\end{comment}"),
    *(
        "\\begin{document}",
        "\\end{document}",
        "\\endinput",
        "\\url{a%b}",
        "\\def\\e{",
        "\\documentclass[a]{art}",
        "\\bye",
    ),
]
ENVIRONMENTS = ("verbatim", "comment")


def scanned(text):
    """(calls, end, comments) by a scanner that knows the same rules and shares no code: one position after another."""
    calls, comments, at = [], [], 0

    def here(pattern):
        return re.compile(pattern).match(text, at)

    while at < len(text):
        if text[at] == "%":
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            comments.append((at, end))
            at = end
            continue
        if text[at] != "\\":
            at += 1
            continue
        environment = next((one for one in ENVIRONMENTS if text.startswith(f"\\begin{{{one}}}", at)), None)
        if environment and (end := text.find(f"\\end{{{environment}}}", at + len(environment) + 8)) >= 0:
            if environment == "comment":
                comments.append((at, end + len("\\end{comment}")))
            at = end + len(environment) + 6
        elif found := here(r"\\verb\*?([^A-Za-z\s*{[])"):
            end = text.find(found[1], found.end())
            at = end + 1 if end >= 0 else found.end()
        elif found := here(r"\\url\{[^{}\n]*\}"):
            at = found.end()
        elif found := here(r"\\sub(?:import)\{([^{}\n]*)\}\{([^{}\n]*)\}|\\import\{([^{}\n]*)\}\{([^{}\n]*)\}"):
            calls.append((at, found.end(), found[1] or found[3] or "", found[2] or found[4] or None))
            at = found.end()
        elif here(r"\\(input|include|subfile)(?![A-Za-z@])"):
            found = here(r'\\(?:input|include|subfile)(?:\s*\{([^{}\n]*)\}|\s*"([^"\n]*)"|[ \t]+([^\s\\{}%"#]+))?')
            name = (found[1] or found[2] or found[3] or "").strip()
            calls.append((at, found.end(), "", None if not name or set(name) & set("\\#~$") else name))
            at = found.end()
        elif found := here(r"\\end\{document\}|\\endinput(?![A-Za-z@])"):
            line = text[text.rfind("\n", 0, at) + 1 : at][-99:]
            at = found.end()
            if not re.search(r"\{\s*$|\\def(?![A-Za-z])", line):
                return calls, at, comments
        elif found := here(r"\\(?:[\\%]|begin\{document\}|documentclass\[[^]]*\]\{[^{}\n]*)"):
            at = found.end()
        else:
            at += 1
    return calls, len(text), comments


@FUZZ
@given(st.lists(st.sampled_from(WORDS), max_size=25).map("".join))
def test_outline_is_that_of_a_scanner_by_characters(text):
    calls, end, _ = scanned(text)
    found = outline(text)
    assert [(call.start, call.stop, call.folder, call.name) for call in found.calls] == calls
    assert found.end == end


@FUZZ
@given(st.lists(st.sampled_from([w for w in WORDS if "\\end" not in w or "verb" in w or "comm" in w]), max_size=25))
def test_comments_and_nothing_else_go(words):
    text = "".join(words)
    kept, at = [], 0
    for begin, end in scanned(text)[2]:
        line = text.rfind("\n", 0, begin) + 1
        if text[begin] == "\\":  # the environment
            kept.append(text[at:begin])
        elif line >= at and not text[line:begin].strip():
            kept.append(text[at:line])
            end = min(end + 1, len(text))
        else:
            kept.append(text[at:begin] + "%")
        at = end
    assert without_comments(text) == "".join([*kept, text[at:]])


def test_comments_go_as_they_should():
    text = (
        "a % b\n  % whole\n%whole\nc 50\\% x\\\\% y\n\\verb|% no|\n\\begin{comment}\nq\n\\end{comment}\n\\url{a%b} % z"
    )
    assert without_comments(text) == "a %\nc 50\\% x\\\\%\n\\verb|% no|\n\n\\url{a%b} %"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\n\\iffalse\nx \\input{b}\n\\fi\nc", "a\nc"),
        ("\\iffalse x\\fi", ""),
        ("a \\iffalse x \\fi b", "a \\iffalse\\fi b"),
        ("a \\iffalse x \\else y % z\n\\fi b", "a \\iffalse\\else y %\n\\fi b"),
        ("\\iffalse \\ifx\\a\\b \\else \\fi \\ifmmode\\fi \\if@x\\fi % \\fi\n $\\iff \\\\fi\\fi.", "\\iffalse\\fi."),
        ("\\newif\\ifmine\\iffalse \\ifmine 1\\else 2\\fi 3\\fi", "\\newif\\ifmine\\iffalse\\fi"),
        (
            "\\let\\ifmine=\\iffalse \\ifmine 1\\fi \\iffalse\\ifmine\\fi\\fi",
            "\\let\\ifmine=\\iffalse \\ifmine 1\\fi \\iffalse\\fi",
        ),
        ("\\iffalse never closed \\input{b}", None),
        ("\\def\\hide{\\iffalse} \\input{b} \\fi", None),
        ("\\iffalseness \\input{b} \\fi", None),
        ("\\verb|\\iffalse| \\input{b} \\fi", None),
    ],
)
def test_what_iffalse_skips_reads_nothing_and_is_a_comment(text, left):
    assert without_comments(text) == (text if left is None else left)
    calls = [call.name for call in outline(text).calls]
    assert calls == (["b"] if left is None else [])


def test_what_iffalse_skips_ends_nothing_and_takes_no_files_place():
    text = "\\iffalse\n\\input{a}\n\\end{document}\n\\fi\n\\input{a}"
    assert paper({"m.tex": DOC % text, "a.tex": "here\n"})[0] == (DOC % text).replace("\\fi\n\\input{a}", "\\fi\nhere")


@pytest.mark.parametrize(
    "word", [*WORDS, "\\iffalse ", "\\fi ", "\\iffalse\\fi ", "\\newif\\if", "\\let\\ifa=", "\\else\\if@"]
)
def test_time_is_in_proportion_to_length_whatever_is_repeated(word):
    outline(word * 20000)  # would take minutes if each looked to the end of the text
    without_comments(word * 20000)


def paper(files, says="", others=()):
    notes = Counter()
    text, parts = one_text(files, notes, readme(says.encode()), others)
    return text, parts, dict(notes)


DOC = "\\documentclass{amsart}\n\\begin{document}\n%s\n\\end{document}\n"


def test_what_is_read_in_stands_where_it_is_read():
    files = {
        "main.tex": DOC % "\\input{intro}\n\\include{sub/proof} and\n\\input end.tex \n",
        "intro.tex": "Intro\n",
        "sub/proof.tex": "Proof % no line end",
        "end.tex": "End\n",
    }
    text, parts, notes = paper(files)
    assert text == DOC % "Intro\nProof % no line end\n and\nEnd\n \n"
    assert (parts, notes) == (4, {})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("\\input{gone}", "missing"),
        ("\\input ../../etc/outside", "outside the paper"),
        ("\\input{/etc/passwd}", "outside the paper"),
        ("\\input{figure.pstex_t}", "of what is no TeX"),
        ("\\input{\\jobname-1}", "computed by TeX"),
        ("\\input{other}\\input{other}", "repeated"),
        ("\\input{main}", "in a circle"),
    ],
)
def test_commands_that_read_nothing_stay_and_are_counted(body, reason):
    text, _, notes = paper({"main.tex": DOC % body, "other.tex": ""}, others={"figure.pstex_t"})
    assert notes.pop(("inputs", reason)) == 1
    assert body.rsplit("\\input", 1)[-1] in text
    assert notes == ({} if reason == "repeated" else {("files", "not read by the main file"): 1})


def test_comments_and_verbatim_text_and_what_follows_the_end_read_nothing():
    body = "% \\input{a}\n\\begin{verbatim}\n% \\input{a}\n\\end{verbatim}\n\\verb|\\input{a}|\\\\% \\input{a}"
    text, parts, notes = paper({"m.tex": DOC % body + "\\input{a}", "a.tex": "A"})
    assert text == DOC % body and parts == 1
    assert notes == {("files", "kept up to where TeX stops reading"): 1, ("files", "not read by the main file"): 1}


def test_an_end_in_a_definition_is_none():
    text = "\\documentclass{a}\\def\\bd{\\begin{document}}\\def\\ed{\\end{document}}\n\\bd Text \\ed\n"
    assert paper({"m.tex": text}) == (text, 1, {})


def test_files_are_found_from_the_folders_on_the_way():
    files = {
        "src/main.tex": DOC % "\\input{part/one}\n\\subimport{part}{two}",
        "src/part/one.tex": "\\input{../macros}\n\\input{near}",
        "src/part/near.tex": "Near",
        "src/part/two.tex": "Two",
        "src/macros.tex": "Macros",
    }
    text, parts, notes = paper(files)
    assert text == DOC % "Macros\nNear\nTwo" and parts == 5 and not notes


def test_the_main_file_is_the_one_that_is_a_whole_paper():
    files = {"a.tex": "loose", "paper.tex": DOC % "long enough", "short.tex": DOC % "", "z.tex": "x" * 999}
    assert paper(files)[0] == files["paper.tex"]
    assert paper(files)[2] == {("files", "not read by the main file"): 3}
    # Whether the class comes from a file that is read in does not matter.
    files = {
        "chapter.tex": "\\input{preamble}\n\\begin{document}\n\\end{document}\n",
        "preamble.tex": "\\documentclass{a}",
    }
    assert paper(files)[1] == 2
    assert paper({"one.tex": "\\magnification=1 Text \\bye\n", "two.tex": "more text"})[0].startswith("\\magnification")


@pytest.mark.parametrize(
    "says",
    ["short.tex toplevelfile\npaper.tex ignore\n", '{"sources": [{"filename": "short.tex", "usage": "toplevel"}]}'],
)
def test_00readme_says_which_file_is_main(says):
    files = {"paper.tex": DOC % "long enough", "short.tex": DOC % ""}
    assert paper(files, says)[0] == files["short.tex"]


@pytest.mark.parametrize("says", ["", "{", "[]", '{"sources": [1]}', "one two three\n\xff\n", '{"sources": {"a": 1}}'])
def test_a_00readme_that_says_nothing_changes_nothing(says):
    files = {"paper.tex": DOC % ""}
    assert paper(files, says)[0] == files["paper.tex"]


def test_a_folder_of_parts_is_read_in_the_order_of_its_folders():
    part = "\\documentclass[../all]{subfiles}\\begin{document}%s\\end{document}"
    files = {"b/one.tex": part % 1, "b/a/two.tex": part % 2, "c.tex": part % 3, "a/d.tex": part % 4}
    text, parts, notes = paper(files)
    assert re.findall(r"\d", text) == ["3", "4", "1", "2"] and parts == 4 and not notes
    assert sorted(files, key=by_folder) == ["c.tex", "a/d.tex", "b/one.tex", "b/a/two.tex"]


def test_files_that_read_each_other_do_so_once():
    text, parts, notes = paper({"a.tex": DOC % "\\input{b}", "b.tex": "Back to \\input{a}"})
    assert text == DOC % "Back to \\input{a}" and parts == 2
    assert notes == {("inputs", "in a circle"): 1}


def test_a_paper_in_a_circle_is_the_main_file_though_another_is_read_by_none():
    files = {"m.tex": DOC % "\\input{m} \\input{a}", "a.tex": "A \\input{b}", "b.tex": "\\input{m}", "d.tex": "stray"}
    text, parts, notes = paper(files)
    assert text.startswith("\\documentclass") and "A " in text and parts == 3
    assert notes == {("inputs", "in a circle"): 2, ("files", "not read by the main file"): 1}


def test_doubling_files_do_not_double_without_end():
    files = {f"{n}.tex": f"\\input{{{n + 1}}}\\input{{{n + 1}}}" for n in range(40)}
    text, parts, notes = paper({**files, "40.tex": "end"})
    assert parts == DEPTH and len(text) < 40 * 40
    assert notes["inputs", f"over {DEPTH} deep"] == 2
    assert notes["inputs", "repeated"] == DEPTH - 1


@FUZZ
@given(
    st.dictionaries(
        st.sampled_from(["a.tex", "b.tex", "c.tex", "d/e.tex", "d/f.tex"]),
        st.lists(
            st.sampled_from(["\\input{a}", "\\input{b}", "\\include{c}", "\\input{d/e}", "\\subimport{d}{f}", *WORDS])
        ).map("".join),
        min_size=1,
    ),
    st.binary(max_size=40),
)
def test_any_files_make_one_text_no_longer_than_they_are(files, says):
    marked = {name: f"<{name}>{text}" for name, text in files.items()}
    notes = Counter()
    text, parts = one_text(marked, notes, readme(says))
    assert 1 <= parts <= len(files)
    assert len(text) <= sum(map(len, marked.values())) + 2 * len(files)
    for name in marked:
        assert text.count(f"<{name}>") <= 1
    assert (
        sum(text.count(f"<{name}>") for name in marked)
        == parts
        == len(files) - notes["files", "not read by the main file"]
    )
    assert one_text(dict(reversed(marked.items())), Counter(), readme(says)) == (text, parts)


@pytest.mark.parametrize(
    ("data", "text", "notes"),
    [
        ("größer\n".encode(), "größer\n", {}),
        (b"\xef\xbb\xbfx", "x", {}),
        ("größer".encode("utf-16"), "größer", {}),
        ("größer".encode("utf-16-be"), None, {("files", "with NUL bytes"): 1}),  # no mark, so nothing says what it is
        (b"\xfe\xff" + "größer".encode("utf-16-be"), "größer", {}),
        ("größer".encode("utf-32"), "größer", {}),
        ("größer".encode("latin-1"), "größer", {("files", "read as Latin-1"): 1}),
        (b"a\r\nb\rc\n\r\n", "a\nb\nc\n\n", {}),
        ("a\u2028b\u0085c".encode(), "a\u2028b\u0085c", {}),
        (b"a\0b", None, {("files", "with NUL bytes"): 1}),
        (b"", None, {("files", "empty"): 1}),
        (b" \r\n\t", None, {("files", "empty"): 1}),
        (b"\xff\xfea", None, {("files", "read as Latin-1"): 1}),
    ],
)
def test_bytes_become_texts(data, text, notes):
    found = Counter()
    if data == b"\xff\xfea":  # half a character of UTF-16: any bytes are Latin-1
        text = "ÿþa"
    assert decode(data, found) == text
    assert found == notes


def test_other_encodings_are_read_where_they_are_named():
    notes = Counter()
    assert decode("доказательство".encode("koi8-r"), notes, otherwise="koi8-r") == "доказательство"
    assert decode(b"\x81\x8d", notes, otherwise="cp1252") == "\x81\x8d"  # two that cp1252 has not got
    assert decode(b"\xff", notes, otherwise=None) is None
    assert notes == {("files", "read as koi8-r"): 1, ("files", "read as Latin-1"): 1, ("files", "not UTF-8"): 1}
