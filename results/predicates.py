"""Predicates over the cells of one table, measured at one scale: what a claim is made of, and how it is judged.

A claim is judged on the means over seeds. "Clearly" and "within the spread" mean: a difference counts only if it is
more than the sum of the two cells' uncertainties (each the larger of the spreads over seeds and over rotation draws)
and more than half a unit of the last digit that the paper prints. Each claim is judged on the paper's own numbers too:
a claim that fails only here can then be told from one that the paper's table does not bear out either.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from results.reported import Cell
from results.tables import Comparison, decimals

REPORTED = "reported"  # the pseudo-scale of the paper's own numbers

Place = tuple[str, str]  # (row, column)
Pairs = list[tuple[Place, Place]]


class View:
    """Values and uncertainties of one table at one scale; the paper's own numbers have uncertainty 0."""

    def __init__(self, comparison: Comparison, scale: str):
        self.comparison, self.scale = comparison, scale
        self.cells = comparison.group(scale).cells

    def has(self, place: Place) -> bool:
        """Whether there is a number at (row, column)."""
        return self._reported(place) is not None if self.scale == REPORTED else place in self.cells

    def value(self, place: Place) -> float:
        """The mean over seeds, or the reported number."""
        if self.scale == REPORTED:
            cell = self._reported(place)
            assert cell is not None, place
            return float(cell.value)
        return self.cells[place].mean

    def slack(self, a: Place, b: Place) -> float:
        """By how much cell `a` may differ from cell `b` before the difference means something."""
        rounding = 0.5 * 10.0 ** (1 - decimals(self.comparison.table, a))
        if self.scale == REPORTED:
            return rounding
        return max(rounding, self.cells[a].uncertainty + self.cells[b].uncertainty)

    def seeds(self, places: tuple[Place, ...]) -> tuple[int, ...]:
        """The seeds that stand behind every one of the cells."""
        if self.scale == REPORTED:
            return ()
        return tuple(sorted(set.intersection(*(set(self.cells[place].by_seed) for place in places))))

    def name(self, place: Place) -> str:
        """'LSH-4 / LSH-8': the labels of row and column."""
        table = self.comparison.table
        return f"{table.rows[place[0]]} / {table.columns[place[1]]}"

    def _reported(self, place: Place) -> Cell | None:
        cell = self.comparison.table.cells.get(place)
        return None if cell is None or isinstance(cell.value, str) else cell


@dataclass(frozen=True)
class Check:
    """The cells a predicate looks at, and `test(view)` -> (holds, the numbers behind it as a phrase)."""

    needs: tuple[Place, ...]
    test: Callable[[View], tuple[bool, str]]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper about one reported table. `note` says how it is read, where that is a choice."""

    name: str
    sentence: str
    place: str
    check: Check
    note: str = ""
    table: str = ""

    def about(self, table: str) -> "Claim":
        """The same claim, about that table."""
        return dataclasses.replace(self, table=table)


@dataclass(frozen=True)
class Verdict:
    """`verdict` is 'holds', 'fails' or 'not run'; `missing` names absent cells, `seeds` those behind every cell."""

    claim: Claim
    scale: str
    verdict: str
    detail: str
    missing: tuple[Place, ...]
    seeds: tuple[int, ...]


def judge(claim: Claim, comparison: Comparison, scale: str) -> Verdict:
    """The verdict on one claim at one scale ('reported' for the paper's own numbers)."""
    view, needs = View(comparison, scale), claim.check.needs
    missing = tuple(place for place in needs if not view.has(place))
    if missing:
        return Verdict(claim, scale, "not run", "", missing, ())
    holds, detail = claim.check.test(view)
    return Verdict(claim, scale, "holds" if holds else "fails", detail, (), view.seeds(needs))


def at_least(place: Place, bound: float) -> Check:
    """The cell reaches `bound`."""
    return _bounded(place, lambda value: value >= bound, f"at least {bound:g}")


def at_most(place: Place, bound: float) -> Check:
    """The cell stays at or below `bound`."""
    return _bounded(place, lambda value: value <= bound, f"at most {bound:g}")


def no_worse(pairs: Pairs) -> Check:
    """For every (a, b): cell a is not below cell b by more than the spread (accuracies: higher is better)."""
    return _compared(pairs, lambda view, a, b: view.value(a) >= view.value(b) - view.slack(a, b), "below")


def better(pairs: Pairs) -> Check:
    """For every (a, b): cell a is clearly above cell b."""
    return _compared(pairs, lambda view, a, b: view.value(a) > view.value(b) + view.slack(a, b), "not clearly above")


def lower(pairs: Pairs) -> Check:
    """For every (a, b): cell a is clearly below cell b (perplexities: lower is better)."""
    return _compared(pairs, lambda view, a, b: view.value(a) < view.value(b) - view.slack(a, b), "not clearly below")


def no_higher(pairs: Pairs) -> Check:
    """For every (a, b): cell a is not above cell b by more than the spread."""
    return _compared(pairs, lambda view, a, b: view.value(a) <= view.value(b) + view.slack(a, b), "above")


def near(pairs: Pairs, share: float) -> Check:
    """For every (a, b): cell a exceeds cell b by at most `share` of it."""
    fault = f"more than {share:.0%} above"
    return _compared(pairs, lambda view, a, b: view.value(a) <= view.value(b) * (1 + share), fault)


def both(*checks: Check) -> Check:
    """All of the checks."""

    def test(view):
        results = [check.test(view) for check in checks]
        return all(holds for holds, _ in results), "; ".join(detail for _, detail in results)

    return Check(tuple(dict.fromkeys(place for check in checks for place in check.needs)), test)


def _bounded(place, holds, wanted):
    def test(view):
        value = view.value(place)
        return holds(value), f"{view.name(place)} {value:.2f}, wanted {wanted}"

    return Check((place,), test)


def _compared(pairs, holds, fault):
    def test(view):
        wrong = [(a, b) for a, b in pairs if not holds(view, a, b)]
        told = [f"{view.name(a)} {view.value(a):.2f} {fault} {view.name(b)} {view.value(b):.2f}" for a, b in wrong]
        count = f"{len(pairs) - len(wrong)} of {len(pairs)} comparisons hold"
        return not wrong, "; ".join([count, *told])

    return Check(tuple(dict.fromkeys(place for pair in pairs for place in pair)), test)
