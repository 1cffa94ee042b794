"""What fills a cell and what does not; the numbers against NumPy; what the terminal and a pipe get to see."""

import io
import re

import numpy as np
import pytest

from results import compare, reported, schema, tables

TABLE2 = reported.find("reformer/table2")
DRAWS = [[99.0, 100.0], [98.0, 99.0], [97.0, 99.0]]


def compared(records):
    return tables.compare(TABLE2, records)


def test_mean_spreads_and_difference_against_numpy(make):
    records = [make(seed=seed, values={"lsh8": draws}) for seed, draws in enumerate(DRAWS)]
    cell = compared(records).group("cpu").cells["lsh4", "lsh8"]
    array = np.array(DRAWS)
    assert cell.by_seed == dict(enumerate(array.mean(1)))
    assert cell.mean == pytest.approx(array.mean())
    assert cell.spread == pytest.approx(np.std(array.mean(1), ddof=1))
    assert cell.draw_spread == pytest.approx(np.sqrt(np.mean(array.std(1) ** 2)))
    assert cell.difference == pytest.approx(array.mean() - 100)
    assert cell.uncertainty == pytest.approx(max(cell.spread, cell.draw_spread))


def test_one_seed_and_one_draw_have_no_spread(make):
    cell = compared([make(values={"full": 99.0})]).group("cpu").cells["lsh4", "full"]
    assert (cell.spread, cell.draw_spread, cell.uncertainty) == (None, None, 0.0)
    assert cell.difference == pytest.approx(99.0 - 0.8)


def test_scales_are_kept_apart_in_order_and_paper_is_always_there(make):
    comparison = compared([make(scale=scale) for scale in ("tiny", "zeta", "cpu", "short", "beta")])
    assert [group.scale for group in comparison.groups] == ["paper", "short", "cpu", "tiny", "beta", "zeta"]
    assert comparison.group("paper").cells == {}
    assert comparison.group("gpu").cells == {}
    assert not compared([]).measured


def test_the_newest_record_of_a_seed_counts(make):
    old = make(values={"lsh4": 50.0}, finished="2026-01-31T10:00:00+00:00")
    new = make(values={"lsh4": 90.0}, finished="2026-01-31T10:00:01+00:00")
    # Later by the clock although its text sorts first: 10:30 at UTC+2 is 08:30.
    earlier = make(values={"lsh4": 70.0}, finished="2026-01-31T10:30:00+02:00")
    for order in ([old, new, earlier], [new, earlier, old]):
        comparison = compared(order)
        assert comparison.group("cpu").cells["lsh4", "lsh4"].mean == 90.0
        assert comparison.superseded == [earlier, old]


def test_runs_with_overrides_fill_nothing_but_are_listed(make):
    comparison = compared([make(overrides=["STEPS = 9"])])
    assert not comparison.measured
    assert [record.overrides for record in comparison.overridden] == [["STEPS = 9"]]
    assert "with STEPS = 9: full 90 %" in "\n".join(compare.plain(comparison))


def test_other_units_or_directions_are_named_and_not_compared(make):
    record = make(values={"lsh8": 99.0})
    for field, value in (("unit", "fraction"), ("better", "lower")):
        plain = record.to_dict()
        plain["evaluations"]["lsh8"]["metrics"]["accuracy"][field] = value
        comparison = compared([schema.Record.from_dict(plain)])
        assert not comparison.measured
        assert any(value in remark and "not compared" in remark for remark in comparison.remarks)


def test_bits_per_byte_of_enwik8_are_the_papers_bits_per_dim(make):
    metric = {"value": 1.25, "unit": "bits/byte", "better": "lower", "spread": 0.0, "per_draw": [1.25]}

    def cell(**changed):
        record = make(stem="reformer/enwik8/layers12_20k", values={"test": 0.0}).to_dict()
        record["evaluations"]["test"]["metrics"] = {"bits_per_byte": {**metric, **changed}}
        comparison = tables.compare(reported.find("reformer/enwik8"), [schema.Record.from_dict(record)])
        return comparison.group("cpu").cells.get(("layers12_20k", "test")), comparison.remarks

    measured, remarks = cell()
    assert measured.difference == pytest.approx(1.25 - 1.19) and measured.unit == "bits/dim" and not remarks
    for changed in ({"unit": "bits/word"}, {"better": "higher"}):
        measured, remarks = cell(**changed)
        assert measured is None and any("not compared" in remark for remark in remarks)


def test_missing_evaluations_and_unknown_rows_are_named(make):
    comparison = compared([make(values={"lsh8": 99.0}), make(stem="reformer/table2/lsh16")])
    assert set(comparison.group("cpu").cells) == {("lsh4", "lsh8")}
    assert sum("has no accuracy" in remark for remark in comparison.remarks) == 4
    assert any("lsh16" in remark and "is no row" in remark for remark in comparison.remarks)


def test_seeds_that_were_not_run_alike_are_named(make):
    data = {"task": "duplication_256", "fingerprint": "other"}
    comparison = compared([make(seed=0), make(seed=1, steps=500), make(seed=2, data=data)])
    assert "reformer/table2/lsh4 (cpu): its seeds differ in steps: 400, 500" in comparison.remarks
    assert "reformer/table2/lsh4 (cpu): its seeds differ in data: f00, other" in comparison.remarks
    assert compared([make(seed=0), make(seed=1)]).remarks == []


def test_a_table_whose_columns_are_tasks(make):
    record = make(stem="memorizing/table4/ctx512+c4_4k", values={"test": 17.0}).to_dict()
    metrics = record["evaluations"]["test"]["metrics"]
    metrics["perplexity_per_token"] = {**metrics.pop("accuracy"), "unit": "per token", "better": "lower"}
    comparison = tables.compare(reported.find("memorizing/table4"), [schema.Record.from_dict(record)])
    ((place, cell),) = comparison.group("cpu").cells.items()
    assert place == ("ctx512", "c4_4k")
    assert cell.difference == pytest.approx(17.0 - 17.20)
    assert comparison.remarks == []


def test_records_under_no_table_are_found(make):
    stray = make(stem="reformer/table9/x")
    assert tables.homeless([make(), stray, make(stem="memorizing/table4/ctx512+c4_4k")], reported.tables()) == [stray]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(name, folder, file=None, **options):
    file = file or io.StringIO()
    assert compare.show(name, folder, file=file, **options) == 0
    return file.getvalue()


def test_plain_lines_hold_every_cell_of_every_scale(whole_table):
    text = printed("reformer/table2", whole_table)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert sum(line.startswith("paper ") and line.endswith("measured not run") for line in lines) == 20
    assert sum(line.startswith("cpu ") for line in lines) == 20
    expected = "cpu lsh4 lsh1: reported 91.9, measured 89.99 ±0.01, difference -1.91, draws ±0.02, seeds 0, 1, 2"
    assert expected in lines


def test_a_cell_nobody_reports_is_still_printed(tmp_path):
    assert "paper vanilla_1b test: reported -, measured not run" in printed("memorizing/scaling", tmp_path)
    assert "vaswani2017_base sacrebleu_cased" not in printed("reformer/table4", tmp_path)


def test_a_foreign_record_is_named_below_and_costs_nothing(whole_table):
    (whole_table / "reformer/table2/lsh4/foreign.json").write_text("{}")
    text = printed("table2", whole_table)
    assert "cpu lsh4 lsh1: reported 91.9, measured 89.99" in text
    assert "foreign.json: field 'schema': received None" in text


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", ["reformer/table2", "reformer/table1", "memorizing/table4", "memorizing/submission"])
def test_a_terminal_of_any_width_shows_every_number_whole(name, width, whole_table, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(name, whole_table, Terminal()))
    assert "…" not in text
    words = text.split()
    if name != "reformer/table1":  # its formulas may be folded
        for cell in reported.find(name).cells.values():
            assert cell.text in words


def test_all_tables_at_once(whole_table, put):
    put(stem="reformer/table9/x", seed=5)
    text = printed(None, whole_table)
    assert "cpu lsh4 lsh1: reported 91.9" in text
    for name in reported.tables():
        assert f"{name}:" in text
    assert "reformer/table9/x scale cpu seed 5, 400 steps: under no reported table" in text


def test_markdown_on_request(whole_table):
    text = printed("reformer/table2", whole_table, markdown=True)
    assert "| LSH-4 | 0.8 | **99.89** ±0.01 (+99.09) | 100 | **99.89** ±0.01 (-0.11)<br>draws ±0.02 |" in text


def test_an_unknown_table_is_wrong_use(capsys, tmp_path):
    assert compare.show("reformer/tabel2", tmp_path) == 2
    assert capsys.readouterr().err.startswith(
        "repro: no reported table 'reformer/tabel2'; did you mean reformer/table2"
    )


def test_a_pipe_without_unicode_gets_plain_signs(whole_table):
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    compare.show("reformer/table2", whole_table, file=file)
    file.flush()
    assert b"measured 89.99 ?0.01" in file.buffer.getvalue()


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [(99.955, 2, False, "99.95"), (-0.001, 2, True, "+0.00"), (1.5, 2, True, "+1.50"), (2.5e7, 2, False, "2.5e+07")],
)
def test_numbers(value, digits, signed, text):
    from results import texts

    assert texts.number(value, digits, signed) == text


def test_a_gap_is_closed_between_two_other_experiments_of_the_same_seed(make):
    def record(stem, perplexity, seed=0):
        plain = make(stem=stem, values={"test": perplexity}, seed=seed).to_dict()
        metrics = plain["evaluations"]["test"]["metrics"]
        metrics["perplexity_per_token"] = {**metrics.pop("accuracy"), "unit": "per token", "better": "lower"}
        return schema.Record.from_dict(plain)

    vanilla, memory, tuned = (
        "memorizing/scaling/vanilla_1b",
        "memorizing/retrofit/mem65k",
        "memorizing/retrofit/steps20k",
    )
    table = reported.find("memorizing/retrofit")
    whole = [record(vanilla, 3.0), record(memory, 2.0), record(tuned, 2.2), record(tuned, 2.2, seed=1)]
    comparison = tables.compare(table, whole)
    ((place, cell),) = comparison.group("cpu").cells.items()
    assert place == ("steps20k", "test")
    assert cell.by_seed == {0: pytest.approx(80.0)}
    assert cell.difference == pytest.approx(80.0 - 85)
    (remark,) = comparison.remarks
    assert "steps20k (cpu, seed 1): a gap needs memorizing/scaling/vanilla_1b and memorizing/retrofit/mem65k" in remark
    turned = tables.compare(table, [record(vanilla, 2.0), record(memory, 3.0), record(tuned, 2.2)])
    assert not turned.measured and "the second of them better" in turned.remarks[0]
