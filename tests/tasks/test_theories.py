"""Isabelle's headers and the order of theories."""

import random

import pytest

from tasks.theories import Names, arranged, imports, imports_first


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("theory A imports Main begin", ["Main"]),
        (
            'theory A\nimports\n  "../Other/B"  C\n  "HOL-Library.Multiset"\nbegin',
            ["../Other/B", "C", "HOL-Library.Multiset"],
        ),
        ('theory A imports B keywords "begin_x" :: thy_decl begin', ["B"]),
        ('theory "A" imports B abbrevs "x" = "y" begin', ["B"]),
        ("(* theory X imports Y begin (* nested *) *) theory A imports B begin", ["B"]),
        ("section \\<open>theory X imports Y \\<open>z\\<close> begin\\<close> theory A imports B begin", ["B"]),
        ("section ‹theory X imports Y begin› theory A imports B begin", ["B"]),
        ("header {* theory X imports Y begin *} theory A imports B begin", ["B"]),
        ("theory A imports B (* C *) D begin", ["B", "D"]),
        ("theory Pure begin", []),
        ("", []),
        ("(* never closed theory A imports B begin", []),
    ],
)
def test_imports(text, wanted):
    assert imports(text) == wanted


def theory(name, *needs):
    return f"dir/{name}.thy", f"theory {name} imports {' '.join(needs) or 'Main'} begin end"


def names(files):
    return [path[4:-4] for path, _ in files]


def test_order_by_hand():
    files = [theory("A", "C"), theory("B"), theory("C", "D", "Elsewhere"), theory("D"), theory("E", "B")]
    assert names(imports_first(files)) == ["D", "C", "A", "B", "E"]


def test_circles_keep_every_theory_once():
    files = [theory("A", "B"), theory("B", "C"), theory("C", "A"), theory("S", "S")]
    assert sorted(names(imports_first(files))) == ["A", "B", "C", "S"]


def test_long_chains():
    files = [theory(f"T{n}", f"T{n + 1}") for n in range(5000)]
    assert names(imports_first(files)) == [f"T{n}" for n in reversed(range(5000))]


@pytest.mark.parametrize("case", range(10))
def test_any_graph_without_circles(case):
    draw = random.Random(case)
    order = [f"N{n}" for n in range(20)]
    files = [theory(name, *draw.sample(order[:n], min(n, draw.randint(0, 3)))) for n, name in enumerate(order)]
    draw.shuffle(files)
    place = {name: n for n, name in enumerate(names(imports_first(files)))}
    assert sorted(place) == sorted(order)
    assert all(place[need] < place[path[4:-4]] for path, text in files for need in imports(text) if need != "Main")


def test_names_mean_files_by_path_session_and_name():
    names = Names(
        ["A.thy", "x/A.thy", "x/B.thy", "y/B.thy"], {"A.thy": "S", "x/A.thy": "S", "x/B.thy": "S", "y/B.thy": "T"}
    )
    for name, importer, wanted in (
        ("A", "A.thy", 0),
        ("A", "x/B.thy", 1),
        ("../A", "x/B.thy", 0),
        ("../A", "y/B.thy", 0),
        ("A", "y/B.thy", 0),
        ("x/A", "A.thy", 1),
        ("B", "A.thy", 2),  # of its own session
        ("T.B", "A.thy", 3),
        ("S.B", "y/B.thy", 2),
        ("Other.B", "A.thy", None),
        ("~~/src/B", "A.thy", None),
        ("$AFP/X/B", "A.thy", None),
        ("Main", "A.thy", None),
    ):
        assert names.find(name, importer) == wanted, (name, importer)
    assert Names(["x/B.thy"], {}).find("Other.B", "A.thy") == 0  # nothing is known of sessions


def test_circles_are_told():
    wanted = {"A.thy": ["B"], "B.thy": ["C", "Main"], "C.thy": ["A"], "D.thy": ["D", "A"], "E.thy": ["D"]}
    order, circles = arranged(wanted)
    assert circles == [["A.thy", "B.thy", "C.thy"], ["D.thy"]]
    assert sorted(order) == sorted(wanted) and order.index("A.thy") < order.index("D.thy") < order.index("E.thy")
