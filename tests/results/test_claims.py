"""Claims: they hold on the paper's own numbers, fail where they must, and say 'not run' with what is missing."""

import pytest

from results import claims, reported, tables
from results.predicates import REPORTED, both, no_worse


def verdicts(table, records, scale):
    comparison = tables.compare(reported.find(table), records)
    found = claims.verdicts(comparison)
    return {name: next(one for one in line if one.scale == scale) for name, line in found.items()}


@pytest.mark.parametrize("table", sorted({claim.table for claim in claims.CLAIMS}))
def test_claims_hold_on_the_papers_own_numbers(table):
    told = {name: verdict.verdict for name, verdict in verdicts(table, [], REPORTED).items()}
    expected = {"worth_five_times": "not run"}  # the figure's 1B value was not found
    usual = "holds" if reported.find(table).cells else "not run"  # plots without numbers
    assert told == {name: expected.get(name, usual) for name in told}


def test_claims_have_names_of_their_own_and_speak_of_cells_that_exist():
    names = [claim.name for claim in claims.CLAIMS]
    assert len(set(names)) == len(names)
    for claim in claims.CLAIMS:
        assert set(claim.check.needs) <= set(reported.find(claim.table).places), claim.name


def test_nothing_measured_is_not_run_with_the_missing_cells(make):
    assert {one.verdict for one in verdicts("reformer/table2", [], "paper").values()} == {"not run"}
    one = verdicts("reformer/table2", [make(values={"lsh4": 99.0})], "cpu")["fewer_rounds_cost"]
    assert one.verdict == "not run"
    assert one.missing == (("lsh4", "lsh2"), ("lsh4", "lsh1"))


def test_verdicts_at_one_scale_with_the_seeds_behind_them(whole_table):
    from results import schema

    records, _ = schema.read_all(whole_table)
    found = verdicts("reformer/table2", records, "cpu")
    fails = {name for name, one in found.items() if one.verdict == "fails"}
    assert fails == {"fewer_in_training", "full_at_chance"}
    assert all(one.seeds == (0, 1, 2) for one in found.values())
    assert "LSH-4 / LSH-1 89.99 below LSH-2 / LSH-1 91.99" in found["fewer_in_training"].detail
    assert "LSH-4 / Full 99.89, wanted at most 2" in found["full_at_chance"].detail


def test_only_seeds_common_to_all_cells_stand_behind_a_claim(make):
    values = {"lsh4": 99.0, "lsh2": 90.0, "lsh1": 80.0}
    records = [make(seed=0, values=values), make(seed=1, values=values), make(seed=2, values={"lsh4": 99.0})]
    assert verdicts("reformer/table2", records, "cpu")["fewer_rounds_cost"].seeds == (0, 1)


@pytest.mark.parametrize(
    ("lsh2", "lsh1", "verdict"),
    [
        ([90.0, 90.0], [90.04, 90.04], "holds"),  # within the rounding of the paper's numbers
        ([90.0, 90.0], [90.1, 90.1], "fails"),
        ([89.0, 91.0], [90.5, 92.5], "holds"),  # a spread of 1 each: 1.5 is within their sum
        ([89.0, 91.0], [91.5, 93.5], "fails"),  # 2.5 is not
    ],
)
def test_within_the_spread(lsh2, lsh1, verdict, make):
    pairs = [(("lsh4", "lsh2"), ("lsh4", "lsh1"))]
    claim = claims.Claim("c", "s", "p", both(no_worse(pairs)), table="reformer/table2")
    comparison = tables.compare(reported.find("reformer/table2"), [make(values={"lsh2": lsh2, "lsh1": lsh1})])
    assert claims.judge(claim, comparison, "cpu").verdict == verdict


def test_more_rounds_that_hurt_are_caught(make):
    rows = ("full", "lsh4", "lsh2", "lsh1")
    values = {"full": 99.0, "lsh8": 95.0, "lsh4": 99.0, "lsh2": 90.0, "lsh1": 80.0}
    records = [make(stem=f"reformer/table2/{row}", values=values) for row in rows]
    one = verdicts("reformer/table2", records, "cpu")["more_rounds"]
    assert one.verdict == "fails"
    assert "8 of 12 comparisons hold; Full / LSH-8 95.00 below Full / LSH-4 99.00" in one.detail
