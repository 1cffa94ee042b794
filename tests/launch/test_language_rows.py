"""Rows of enwik8, imagenet64 and Figures 3 to 5: settings of the paper and of the authors' configurations."""

import math

import pytest

from launch import check, config
from launch import composition as files
from reformer import LSH, Full, Local

LANGUAGE = {
    "layers": 3,
    "width": 1024,
    "hidden": 4096,
    "heads": 8,
    "head_width": 64,
    "attention": LSH(2, 128, within_bucket=True),
    "residual": "reversible",
    "merge": "concatenate",
    "positions": "sinusoid",
    "activation": "relu",
    "dropout": 0.0,
    "shared_dropout": True,
}
SINGLE = {"residual": "single"}
AVERAGED = {"attention": Full(shared=False), "merge": "average"}
AXIAL = {"positions": "axial", "axial_grid": (64, 64, 3), "axial_widths": (384, 384, 256), "activation": "gelu"}
TUNED = {"layers": 12, "head_width": 128, "dropout": 0.2, "positions": "axial", "axial_grid": (128, 512),
         "axial_widths": (256, 768)}  # fmt: skip


def mixed(hashed):
    local = Local(128, dropout=0.2)
    return {**TUNED, "attention": (local, local, hashed, local)}


ROWS = {
    "enwik8/layers12_20k": {"layers": 12, "dropout": 0.1},
    "enwik8/layers12_tuned": mixed(LSH(2, 256, within_bucket=True, dropout=0.2)),
    "enwik8/layers12_tuned_official": mixed(LSH(2, 256, correct_duplicates=False, wrap=True, dropout=0.2)),
    "figure3/enwik8_regular": {"attention": Full(shared=False), **SINGLE},
    "figure3/enwik8_shared_qk": {"attention": Full(), **SINGLE},
    "figure3/enwik8_reversible": AVERAGED,
    "figure3/imagenet64_regular": {"attention": Full(shared=False), **SINGLE},
    "figure3/imagenet64_shared_qk": {"attention": Full(), **SINGLE},
    "figure3/imagenet64_reversible": AVERAGED,
    "figure4/full": {"attention": Full()},
    **{f"figure4/lsh{rounds}": {"attention": LSH(rounds, 128, within_bucket=True)} for rounds in (1, 2, 4, 8, 16)},
    **{f"figure5/layers{layers}": {"layers": layers} for layers in (3, 6, 12, 20)},
    "figure5/layers3_full": {"attention": Full()},
    "imagenet64/layers6": {"layers": 6, **AXIAL},
    "imagenet64/layers12": {"layers": 12, **AXIAL},
}
STEPS = {"enwik8/layers12_20k": 20_000, "enwik8/layers12_tuned": 100_000, "enwik8/layers12_tuned_official": 100_000}
PEAKS = {"enwik8/layers12_tuned": 6.99e-4, "enwik8/layers12_tuned_official": 6.99e-4, "imagenet64": 3.49e-4}


def test_no_row_is_forgotten():
    others = ("table2", "table4", "acceptance")
    stems = [stem.removeprefix("reformer/") for stem in files.stems() if stem.startswith("reformer/")]
    assert {stem for stem in stems if stem.partition("/")[0] not in others} == set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_the_papers(row):
    experiment = config.build(files.compose(f"reformer/{row}"))
    for name, value in {**LANGUAGE, **ROWS[row]}.items():
        assert getattr(experiment.model, name) == value, name
    pictures = "imagenet64" in row or "figure4" in row
    assert experiment.task.name.partition(".")[0] == ("imagenet64" if pictures else "enwik8_64k")
    assert experiment.task.length == experiment.model.length == (64 * 64 * 3 if pictures else 2**16)
    assert experiment.steps == STEPS.get(row, 500_000 if pictures else 60_000)
    assert experiment.batch_size == 8
    peak = PEAKS.get(row, PEAKS.get(row.partition("/")[0], 2.236e-2))
    assert float(experiment.optimizer.rate(experiment.steps)(10_000_000 - 1)) < peak
    best = max(float(experiment.optimizer.rate(experiment.steps)(step - 1)) for step in (1999, 2000, 7999, 8000, 8001))
    assert best == pytest.approx(peak, rel=2e-3)
    assert type(experiment.optimizer).__name__ == ("Adafactor" if peak == 2.236e-2 else "Adam")
    for evaluation in experiment.evaluations.values():
        assert (evaluation.model, evaluation.split) == (experiment.model, "test")
    for setting in experiment.model.pattern:
        if isinstance(setting, LSH):  # the paper: twice as many buckets as chunks; the authors: 1024, 512 and 192
            assert math.prod(setting.factors(experiment.task.length)) == 2 * experiment.task.length // setting.chunk


def test_parameters_are_as_many_as_in_the_authors_models():
    count = {
        row: check.check(files.compose(f"reformer/{row}"))[0] for row in ROWS if "tuned" in row or "figure3" in row
    }
    assert count["enwik8/layers12_tuned"] == count["enwik8/layers12_tuned_official"]
    assert count["enwik8/layers12_tuned"] == pytest.approx(149.2e6, rel=0.01)
    # By hand: shared keys spare a matrix in every fourth layer; feed-forward; two norms a layer and one at the end.
    attention = (9 * 4 + 3 * 3) * 1024 * 8 * 128
    feedforward = 12 * (2 * 1024 * 4096 + 4096 + 1024)
    ends = 258 * 1024 + 128 * 256 + 512 * 768 + 2048 * 258 + 258
    assert count["enwik8/layers12_tuned"] == attention + feedforward + ends + (12 * 2 * 2 * 1024 + 2 * 2048)
    for task in ("enwik8", "imagenet64"):
        assert count[f"figure3/{task}_reversible"] == count[f"figure3/{task}_regular"]
        assert count[f"figure3/{task}_shared_qk"] < count[f"figure3/{task}_regular"]
