"""Isabelle: ROOT files, and documents in which every theory stands after what it imports."""

import random
import re
from collections import Counter

import pytest

from tasks.build.isabelle import Isabelle
from tasks.build.roots import sessions
from tasks.task import DataError


def theory(name, *needs):
    return f"theory {name} imports {' '.join(needs) or 'Main'} begin\nend\n"


def tree(top, files):
    for path, text in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text)
    return top


def built(top):
    notes = Counter()
    reader = Isabelle()
    found = [document for unit in reader.units(str(top), notes) for document in reader.read(unit, notes)]
    return {document.name: document for document in found}, dict(notes)


def order(document):
    return re.findall(r"^theory (\S+)", document.text, re.MULTILINE)


ROOT = r"""
chapter AFP (* session Decoy = HOL *)

session "Two-Words" (AFP slow) in Sub = "HOL-Library" +
  description \<open>session In_Text = HOL + theories X\<close>
  options [timeout = 600, document_variants = "document:outline=/proof"]
  sessions
    "HOL-Library" First
  directories "Lib" More
  theories [document = false]
    (* Prerequisites *)
    "HOL-Library.Multiset"
    "Lib/List_Misc"
  theories
    Main_Theory (global) Other
  document_files
    "root.tex" (in "text") "x.sty"
  export_files (in "out") [1] "*:**.ML"

session First = HOL +
  theories A

session Empty
session Bare = HOL
"""


def test_root_files():
    two, first, empty, bare = sessions(ROOT)
    assert (two.name, two.chapter, two.folder, two.parent) == ("Two-Words", "AFP", "Sub", "HOL-Library")
    assert two.sessions == ["HOL-Library", "First"] and two.directories == ["Lib", "More"]
    assert two.theories == ["HOL-Library.Multiset", "Lib/List_Misc", "Main_Theory", "Other"]
    assert (first.name, first.parent, first.theories, first.folder) == ("First", "HOL", ["A"], "")
    assert (empty.name, empty.parent, empty.theories) == ("Empty", "", []) and (bare.name, bare.parent) == (
        "Bare",
        "HOL",
    )


@pytest.mark.parametrize(
    "text", ["", "session", "session A in", "session A (", "theories X", "chapter", 'session A = "', "(* ("]
)
def test_root_files_that_break_off(text):
    assert all(one.theories == [] for one in sessions(text))


def test_an_entry_is_a_document_in_the_order_of_its_imports_and_its_root(tmp_path):
    entry = {
        "thys/Entry/ROOT": "chapter AFP session More = Entry + theories Z Sub/Y session Entry = HOL + theories B A",
        "thys/Entry/A.thy": theory("A", "C"),
        "thys/Entry/B.thy": theory("B"),
        "thys/Entry/C.thy": theory("C", '"HOL-Library.B"', '"../Other/Elsewhere"'),
        "thys/Entry/Unnamed.thy": theory("Unnamed"),
        "thys/Entry/Z.thy": theory("Z", '"Sub/X"', "Entry.A"),
        "thys/Entry/Sub/X.thy": theory("X"),
        "thys/Entry/Sub/Y.thy": theory("Y", "X", '"../B"'),
        "thys/Entry/document/root.tex": "left out",
        "thys/Other/ROOT": "chapter AFP session Other = Entry + theories Elsewhere",
        "thys/Other/Elsewhere.thy": theory("Elsewhere", "Entry.A"),
        "thys/ROOTS": "Entry\nOther\n",
    }
    found, notes = built(tree(tmp_path, entry))
    assert order(found["thys/Entry"]) == ["B", "C", "A", "X", "Z", "Y", "Unnamed"]
    assert order(found["thys/Other"]) == ["Elsewhere"] and found["thys/Entry"].parts == 7
    assert notes == {("files", "other than theories"): 1, ("files", "beside the entries"): 1}


def test_a_session_of_the_distribution_is_a_document(tmp_path):
    source = {
        "COPYRIGHT": "nothing that is known",
        "src/HOL/ROOT": """chapter HOL
            session HOL = Pure + theories Main
            session "HOL-Library" in Library = HOL + theories Multiset "Sub/Tree"
            session "HOL-Big" in Big = "HOL-Library" + directories Part theories Big
            session "HOL-Empty" in Nowhere = HOL + theories Gone""",
        "src/HOL/Main.thy": theory("Main", "List"),
        "src/HOL/List.thy": theory("List", "Pure"),
        "src/HOL/Stray.thy": theory("Stray", "Main"),
        "src/HOL/Library/Multiset.thy": theory("Multiset", "Main", "Order"),
        "src/HOL/Library/Order.thy": theory("Order"),
        "src/HOL/Library/Sub/Tree.thy": theory("Tree", '"../Order"'),
        "src/HOL/Big/Big.thy": theory("Big", '"Part/Piece"', '"HOL-Library.Multiset"'),
        "src/HOL/Big/Part/Piece.thy": theory("Piece"),
        "src/ZF/ROOT": "session ZF = FOL + theories ZF",
        "src/ZF/ZF.thy": theory("ZF", "FOL"),
    }
    found, notes = built(tree(tmp_path, source))
    assert {name: order(one) for name, one in found.items()} == {
        "src/HOL/HOL": ["List", "Main"],
        "src/HOL/HOL-Library": ["Order", "Multiset", "Tree"],
        "src/HOL/HOL-Big": ["Piece", "Big"],
        "src/ZF": ["ZF"],
    }
    beside = {("files", "beside the entries"): 1}  # COPYRIGHT
    assert notes == {("documents", "without theories"): 1, ("files", "in no session"): 1} | beside


@pytest.mark.parametrize("case", range(8))
def test_every_theory_stands_after_what_it_imports(tmp_path, case):
    """Random entries of two sessions in several folders, imports in all three forms; checked line by line."""
    draw = random.Random(case)
    places = [f"{draw.choice(['', 'Lib/', 'Lib/Deep/', 'Ex/'])}T{n}" for n in range(25)]
    needs, files = {}, {}
    for number, place in enumerate(places):
        chosen = draw.sample(places[:number], min(number, draw.randint(0, 3)))
        needs[place] = chosen
        up = "../" * place.count("/")
        forms = [draw.choice([f'"{up}{one}"', f"S{places.index(one) % 2}.T{places.index(one)}"]) for one in chosen]
        beside = [one for one in chosen if one.rpartition("/")[0] == place.rpartition("/")[0]]
        forms += [one.rpartition("/")[2] for one in beside]
        files[f"E/{place}.thy"] = theory(f"T{number}", *forms, "Main")
    named = [[f'"{place}"' for n, place in enumerate(places) if n % 2 == part] for part in (0, 1)]
    draw.shuffle(named[0])
    files["E/ROOT"] = (
        f"chapter AFP session S0 = HOL + theories {' '.join(named[0])} session S1 = S0 + theories {' '.join(named[1])}"
    )
    found, notes = built(tree(tmp_path, files))
    stands = {name: place for place, name in enumerate(order(found["E"]))}
    assert sorted(stands) == sorted(f"T{n}" for n in range(25)) and not notes
    for place, chosen in needs.items():
        assert all(stands[one.rpartition("/")[2]] < stands[place.rpartition("/")[2]] for one in chosen)


def test_theories_of_one_name_in_two_folders(tmp_path):
    files = {
        "E/ROOT": 'chapter AFP session S = HOL + theories Main_Part session T = S + theories "b/Same" "b/Use"',
        "E/Main_Part.thy": theory("Main_Part", '"a/Same"', '"a/Use"'),
        "E/a/Same.thy": "theory Same imports Main begin lemma in_a: True\n",
        "E/a/Use.thy": "theory Use imports Same begin lemma uses_a: True\n",
        "E/b/Same.thy": "theory Same imports Main begin lemma in_b: True\n",
        "E/b/Use.thy": "theory Use imports T.Same begin lemma uses_b: True\n",
    }
    found, notes = built(tree(tmp_path, files))
    assert (
        re.findall(r"(in_a|in_b|uses_a|uses_b)", found["E"].text) == ["in_a", "uses_a", "in_b", "uses_b"] and not notes
    )


def test_circles_and_missing_imports_are_told(tmp_path):
    files = {
        "E/ROOT": "chapter AFP session E = HOL + theories A S",
        "E/A.thy": theory("A", "B"),
        "E/B.thy": theory("B", "C"),
        "E/C.thy": theory("C", "A", "Gone", '"../Lost/L"', '"HOL-Library.Multiset"', '"~~/src/HOL/Old"'),
        "E/S.thy": theory("S", "S", "Complex_Main"),
    }
    found, notes = built(tree(tmp_path, files))
    assert sorted(order(found["E"])) == ["A", "B", "C", "S"]
    assert notes == {
        ("theories", "kept in a circle of imports (A.thy, B.thy, C.thy)"): 3,
        ("theories", "kept in a circle of imports (S.thy)"): 1,
        ("imports", "of theories that are not there"): 2,
    }


def test_bad_files_are_counted(tmp_path):
    tree(tmp_path, {"E/ROOT": "chapter AFP session E = HOL + theories A", "E/A.thy": theory("A")})
    for name, data in (("L", b"theory L imports Main begin (* caf\xe9 *) end"), ("N", b"a\0"), ("Empty", b"")):
        (tmp_path / f"E/{name}.thy").write_bytes(data)
    (tmp_path / "E/Link.thy").symlink_to("/etc/passwd")
    tree(tmp_path, {"Loose/Sub/Alone.thy": theory("Alone")})
    found, notes = built(tmp_path)
    assert "café" in found["E"].text and order(found["Loose/Sub"]) == ["Alone"]
    assert notes == {
        ("files", "read as Latin-1"): 1,
        ("files", "with NUL bytes"): 1,
        ("files", "empty"): 1,
        ("links", "in folders"): 1,
        ("entries", "kept without a ROOT file"): 1,
    }


@pytest.mark.parametrize(
    "metadata",
    [
        {"metadata/metadata": "[Free]\ntitle = x\nlicense = LGPL\n[Other]\ntitle = 100% y\n"},
        {
            "metadata/entries/Free.toml": 'license = "lgpl"\n',
            "metadata/entries/Other.toml": 'license = "bsd"\n',
            "metadata/entries/Made.toml": "= no",
        },
    ],
)
def test_licences_of_the_archive(tmp_path, metadata):
    entry = {"ROOT": "chapter AFP session X = HOL + theories A", "A.thy": theory("A")}
    files = {f"thys/{name}/{file}": text for name in ("Free", "Other", "New") for file, text in entry.items()}
    found, _ = built(tree(tmp_path, {**files, **metadata}))
    assert {name: one.licence for name, one in found.items()} == {
        "thys/Free": "LGPL-2.1-only",
        "thys/Other": "BSD-3-Clause",
        "thys/New": "",
    }


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(DataError, match="isabelle: no directory at"):
        Isabelle().units(str(tmp_path / "nowhere"), Counter())
    with pytest.raises(DataError, match=r"isabelle: no theory in .*; wanted is a tree of the archive"):
        Isabelle().units(str(tmp_path), Counter())


def test_nothing_is_left_out_without_a_word(tmp_path):
    """Every file is in a document, says what is one (ROOT), or is counted."""
    files = {"Good/ROOT": "chapter AFP session G = HOL + theories A", "Good/A.thy": theory("A"), "Good/x.ML": "x"}
    files |= {"Empty/ROOT": "chapter AFP session E = HOL + theories A", "Empty/A.thy": "", "Loose/B.thy": ""}
    files |= {"None/ROOT": "chapter AFP session N = HOL", "None/x.ML": "x", "ROOTS": "Good", "notes/README": "x"}
    found, notes = built(tree(tmp_path, files))
    assert list(found) == ["Good"]
    assert notes == {
        ("files", "empty"): 2,
        ("documents", "without theories"): 2,
        ("entries", "kept without a ROOT file"): 1,
        ("entries", "without theories"): 1,
        ("files", "other than theories"): 1,
        ("files", "beside the entries"): 3,
    }
    assert sum(n for (what, _), n in notes.items() if what == "files") + found["Good"].parts + 3 == len(files)


def test_long_chains_of_sessions_and_headers_take_no_time(tmp_path):
    chain = "".join(f"session S{n} = S{n + 1} + theories X\n" for n in range(3000)) + "session S3000 = S0 +"
    tree(tmp_path, {"E/ROOT": f"chapter AFP {chain}", "E/X.thy": theory("X"), "E/Y.thy": "begin (**) " * 6000})
    assert order(built(tmp_path)[0]["E"]) == ["X"]


def test_a_chapter_in_its_own_right_is_no_theory():
    (one,) = sessions('session A = HOL + theories X chapter_definition "HOL" (isabelle) description "x"')
    assert one.theories == ["X"]
