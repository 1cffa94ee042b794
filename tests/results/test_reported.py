"""The reported numbers, counted and summed again from figures taken by hand from the papers' tables."""

import subprocess
import sys
from collections import Counter
from decimal import Decimal

import pytest

from results import reported

# Cells per table, counted in the sources, not in the files.
COUNTS = {
    "reformer/table1": 3 * 2,
    "reformer/table2": 4 * 5,
    "reformer/table3": 5 * 2,
    "reformer/table4": 3 * 1 + 3 * 3,
    "reformer/table4_notebook": 1 + 4 + 2,
    "reformer/table2_fastai": 4 * 5,
    "reformer/enwik8": 2,
    "reformer/imagenet64": 2,
    "reformer/figure3": 0,  # plots, whose values were not found
    "reformer/figure4": 0,
    "reformer/figure5": 0,
    "reformer/facts": 13,
    "memorizing/table4": 10 * 5,
    "memorizing/table5": 5 + 4,
    "memorizing/retrofit": 2,
    "memorizing/ablations": 4 + 3 + 2,
    "memorizing/scaling": 4,
    "memorizing/step_time": 3 * 2,
    "memorizing/facts": 8,
    "memorizing/lookups": 9 * 2,
    "memorizing/submission": 12 + 8 + 1 + 10 + 11 + 1 + 8 + 5,
    "memorizing/rerun_infini": 2 * 3,
    "memorizing/rerun_fot_arxiv": 6 * 4,
    "memorizing/rerun_fot_pg19": 2 * 3,
    "memorizing/rerun_fot_zeroshot": 4 * 4,
    "memorizing/rerun_fot_noise": 2,
    "memorizing/rerun_melodi": 9,
    "memorizing/rerun_block_recurrent": 3,
    "memorizing/rerun_megabyte": 2,
    "memorizing/datasets": 14,
}

# Sums over a row (all its columns), added up apart from the files.
ROW_SUMS = {
    "reformer/table2": {"full": "416.7", "lsh4": "392.0", "lsh2": "385.6", "lsh1": "373.0"},
    "reformer/table2_fastai": {"full": "110.78", "lsh4": "416.7", "lsh2": "453.2", "lsh1": "362.4"},
    "reformer/table4": {"vaswani2017_base": "27.3", "vaswani2017_big": "28.4", "ott2018_big": "29.3", 
                        "base_100k": "81.9",
                        "base_500k": "83.3", "big_300k": "86.4"},
    "reformer/table4_notebook": {"base": "158.380"},
    "memorizing/table4": {"ctx512": "40.34", "ctx2048": "34.48", "ctx512_xl512": "35.11", "ctx2048_xl2048": "32.59",
                          "ctx512_mem1536": "34.61", "ctx512_mem8192": "33.48", "ctx512_mem8192_xl512": "32.45",
                          "ctx512_mem65k_xl512": "31.90", "ctx2048_mem8192_xl2048": "32.01",
                          "ctx2048_mem65k_xl2048": "31.06"},
    "memorizing/submission": {"arxiv": "35.757", "arxiv_layers45": "22.763", "arxiv_scratch": "2.942",
                              "github": "24.911",
                              "isabelle": "25.727", "isabelle_layers45": "2.239", "c4": "156.981", "pg19": "61.36"},
    "memorizing/rerun_fot_arxiv": {"ctx4k": "9.356", "ctx8k": "9.003", "ctx16k": "8.842", "ctx32k": "8.735",
                                   "ctx64k": "8.698", "ctx128k": "8.693"},
    "memorizing/rerun_fot_pg19": {"memorizing": "43.57", "fot": "42.46"},
    "memorizing/rerun_fot_zeroshot": {"github": "30.18", "isabelle": "27.57", "arxiv": "35.60", "pg19": "94.21"},
    "memorizing/rerun_infini": {"memorizing": "196.63", "xl": "64.30"},
    "memorizing/step_time": {"none": "655.2", "mem8192": "524.25", "mem65k": "218.6"},
}  # fmt: skip

COLUMN_SUMS = {
    "memorizing/table4": {
        "arxiv": "25.44",
        "pg19": "121.85",
        "c4_4k": "146.33",
        "github": "21.60",
        "isabelle": "22.81",
    },
    "memorizing/table5": {"test": "20.59"},
    "memorizing/ablations": {"test": "21.72"},
    "memorizing/scaling": {"test": "9.14"},
    "memorizing/lookups": {"query": "234306", "retrieved": "108018"},
    "memorizing/rerun_melodi": {"memorizing": "210.83", "block_recurrent": "10.98"},
    "reformer/enwik8": {"test": "2.24"},
    "reformer/imagenet64": {"validation": "7.450"},
}

# How many numbers of each confidence: what was not read in the paper or its reference card must be marked.
CONFIDENCE = {
    "reformer/table2": {"stated": 20},
    "reformer/table4": {"stated": 12},
    "reformer/table2_fastai": {"quoted": 20},
    "reformer/table4_notebook": {"quoted": 7},
    "reformer/enwik8": {"stated": 2},
    "reformer/imagenet64": {"quoted": 2},
    "reformer/facts": {"stated": 12, "quoted": 1},
    "memorizing/table4": {"stated": 35, "quoted": 15},
    "memorizing/table5": {"stated": 9},
    "memorizing/ablations": {"stated": 9},
    "memorizing/scaling": {"unverified": 4},
    "memorizing/step_time": {"stated": 3, "derived": 3},
    "memorizing/rerun_block_recurrent": {"unverified": 3},
    "memorizing/submission": {"quoted": 56},
}


def test_every_table_has_its_cells_and_no_other_table_is_there():
    assert {name: len(table.cells) for name, table in reported.tables().items()} == COUNTS
    assert sum(COUNTS.values()) == 336


@pytest.mark.parametrize("name", ROW_SUMS)
def test_row_sums(name):
    sums = Counter()
    for cell in reported.find(name).cells.values():
        sums[cell.row] += cell.value
    assert sums == {row: Decimal(total) for row, total in ROW_SUMS[name].items()}


@pytest.mark.parametrize("name", COLUMN_SUMS)
def test_column_sums(name):
    sums = Counter()
    for cell in reported.find(name).cells.values():
        sums[cell.column] += cell.value
    assert sums == {column: Decimal(total) for column, total in COLUMN_SUMS[name].items()}


@pytest.mark.parametrize("name", CONFIDENCE)
def test_confidence_is_told_honestly(name):
    assert Counter(cell.confidence for cell in reported.find(name).cells.values()) == CONFIDENCE[name]


def test_single_cells_as_the_papers_print_them():
    def text(table, row, column):
        return reported.find(table).cells[row, column].text

    assert text("reformer/table2", "lsh4", "lsh8") == "100"
    assert text("reformer/table2", "full", "lsh1") == "52.5"
    assert text("reformer/table4", "base_500k", "bleu") == "28.0"
    assert text("memorizing/ablations", "layer3", "test") == "2.40"
    assert text("memorizing/ablations", "seeds_mem8192_xl512", "test") == "2.37 ±0.005"
    assert text("memorizing/table4", "ctx2048", "arxiv") == "2.69†"
    assert text("memorizing/scaling", "mem8192_8b", "test") == "1.89?"
    assert text("reformer/table3", "reformer", "memory") == "max(b*l*dmodel, b*nh*l*nr*c)"


def test_units_and_directions_are_those_of_the_metrics():
    expected = {
        "reformer/table2": ("accuracy", "%", "higher"),
        "reformer/enwik8": ("bits_per_byte", "bits/dim", "lower"),
        "memorizing/table4": ("perplexity_per_token", "per token", "lower"),
        "memorizing/table5": ("perplexity_per_token", "per token", "lower"),
        "memorizing/submission": ("perplexity_per_token", "per token", "lower"),
    }
    for name, facts in expected.items():
        assert {(cell.metric, cell.unit, cell.better) for cell in reported.find(name).cells.values()} == {facts}
    bleu = {cell.column: cell.metric for cell in reported.find("reformer/table4").cells.values()}
    assert bleu == {"bleu": "bleu", "sacrebleu_uncased": "sacrebleu_uncased", "sacrebleu_cased": "sacrebleu_cased"}


def test_every_cell_is_complete_and_its_place_in_the_records_unique():
    places = []
    for name, table in reported.tables().items():
        assert table.paper in ("Reformer: The Efficient Transformer", "Memorizing Transformers")
        assert table.arxiv == {"reformer": "2001.04451", "memorizing": "2203.08913"}[name.partition("/")[0]]
        for (row, column), cell in table.cells.items():
            assert (cell.table, cell.row, cell.column) == (name, row, column)
            assert cell.stem.startswith(f"{name}/{row}")
            assert all((cell.unit, cell.source, cell.metric, cell.evaluation)), cell
            places.append((cell.stem, cell.evaluation, cell.metric))
    assert len(set(places)) == len(places)


def test_places_in_the_records():
    table2, table4 = reported.find("reformer/table2"), reported.find("memorizing/table4")
    assert table2.places["lsh4", "lsh8"] == ("reformer/table2/lsh4", "lsh8", "accuracy")
    stem = "memorizing/table4/ctx512_mem8192_xl512+isabelle"
    assert table4.places["ctx512_mem8192_xl512", "isabelle"] == (stem, "test", "perplexity_per_token")


def test_cells_for_a_stem():
    assert [cell.text for cell in reported.cells_for("reformer/table2/lsh1")] == ["0.8", "99.9", "99.6", "94.8", "77.9"]
    assert [cell.text for cell in reported.cells_for("memorizing/table4/ctx512+c4_4k")] == ["17.20"]
    assert len(reported.cells_for("memorizing/table4/ctx512")) == 5
    assert reported.cells_for("reformer/table2/lsh16") == []


@pytest.mark.parametrize(
    ("name", "found"),
    [("reformer/table2", "reformer/table2"), ("table2", "reformer/table2"), ("reformer/table2/lsh4", "reformer/table2"),
     ("memorizing/table4/ctx512+c4_4k", "memorizing/table4"), ("step_time", "memorizing/step_time")],
)  # fmt: skip
def test_names_that_find_a_table(name, found):
    assert reported.find(name).name == found


@pytest.mark.parametrize(
    ("name", "hint"),
    [("reformer/tabel2", "did you mean .*reformer/table2"), ("table4", "reformer/table4, memorizing/table4"),
     ("tabel5", "memorizing/table5"), ("zzz", "known: reformer/enwik8")],
)  # fmt: skip
def test_unknown_names_suggest_the_nearest(name, hint):
    with pytest.raises(reported.UnknownTable, match=hint):
        reported.find(name)


TABLE = """
paper = "P"
arxiv = "1"
place = "here"
title = "t"
caption = "c"
kind = "experiment"
metric = "accuracy"
unit = "%"
better = "higher"
source = "s"
confidence = "stated"
row_title = "r"
column_title = "c"
rows = { a = "A" }
columns = { x = "X" }
[cells]
a = { x = 1 }
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a = { x = 1 }", "b = { x = 1 }", "cells.b: no such row; rows are a"),
        ("a = { x = 1 }", "a = { y = 1 }", "cells.a.y: no such column; columns are x"),
        ("a = { x = 1 }", "a = { x = true }", "value True; wanted a number"),
        ("a = { x = 1 }", "a = { x = { valeu = 1 } }", "unknown key 'valeu'; did you mean 'value'"),
        ('unit = "%"', "", "no unit, neither here nor in its row, column or table"),
        ('unit = "%"', 'unti = "%"', "the table: unknown key 'unti'; did you mean 'unit'"),
        ('"stated"', '"sure"', "confidence 'sure'; wanted stated"),
        ('"higher"', '"more"', "better 'more'; wanted higher"),
        ('"experiment"', '"exp"', "kind: received 'exp'"),
        ('rows = { a = "A" }', "rows = { a = { cited = true } }", "rows.a: no label"),
        ('title = "t"', "", "title: received None"),
        ("[cells]", "[cells", "not TOML"),
    ],
)
def test_a_broken_file_is_named_with_the_place(old, new, message, tmp_path):
    path = tmp_path / "paper" / "table.toml"
    path.parent.mkdir()
    path.write_text(TABLE)
    assert len(reported.load(path, tmp_path).cells) == 1
    path.write_text(TABLE.replace(old, new))
    with pytest.raises(reported.ReportedError, match=message) as caught:
        reported.load(path, tmp_path)
    assert str(path) in str(caught.value)


def test_reading_and_comparing_import_nothing_heavy():
    code = (
        "import sys, results.compare, results.report\n"
        "results.compare.show('reformer/table2', 'nowhere')\n"
        "heavy = {'jax', 'tensorflow', 'matplotlib', 'rich', 'numpy', 'flax', 'seqio'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
