"""Isabelle's headers and the order of theories."""

import random

import pytest

from tasks.theories import imports, imports_first


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("theory A imports Main begin", ["Main"]),
        ('theory A\nimports\n  "../Other/B"  C\n  "HOL-Library.Multiset"\nbegin', ["B", "C", "Multiset"]),
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
