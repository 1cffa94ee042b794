"""Rows of the Memorizing Transformers: the paper's settings, written down apart from the files."""

import pytest

from launch import composition as files
from launch import config

# Context, memory, cache; then what else a row changes. Layers count from 1.
K = 1024
TABLE4 = {
    "ctx512": (512, 0, 0),
    "ctx2048": (2048, 0, 0),
    "ctx512_xl512": (512, 0, 512),
    "ctx2048_xl2048": (2048, 0, 2048),
    "ctx512_mem1536": (512, 1536, 0),
    "ctx512_mem8192": (512, 8 * K, 0),
    "ctx512_mem8192_xl512": (512, 8 * K, 512),
    "ctx512_mem65k_xl512": (512, 64 * K, 512),
    "ctx2048_mem8192_xl2048": (2048, 8 * K, 2048),
    "ctx2048_mem65k_xl2048": (2048, 64 * K, 2048),
}
ONE_B = {"layers": 8, "heads": 32, "width": 2048, "hidden": 16_384}
EIGHT_B = {"layers": 16, "heads": 64, "width": 4096, "hidden": 32_768}
ARXIV = {  # all other tables
    "table5/ctx512_mem8192": ((512, 8 * K, 512), {}),
    "table5/ctx512_mem65k": ((512, 64 * K, 512), {}),
    "table5/ctx512_mem8192_to_mem65k": ((512, 64 * K, 512), {"start": "table5/ctx512_mem8192"}),
    "table5/ctx512_mem8192_to_mem131k": ((512, 128 * K, 512), {"start": "table5/ctx512_mem8192"}),
    "table5/ctx512_mem8192_to_mem262k": ((512, 256 * K, 512), {"start": "table5/ctx512_mem8192"}),
    "table5/ctx2048_mem8192": ((2048, 8 * K, 2048), {}),
    "table5/ctx2048_mem65k": ((2048, 64 * K, 2048), {}),
    "table5/ctx2048_mem65k_to_mem131k": ((2048, 128 * K, 2048), {"start": "table5/ctx2048_mem65k"}),
    "table5/ctx2048_mem65k_to_mem262k": ((2048, 256 * K, 2048), {"start": "table5/ctx2048_mem65k"}),
    **{f"ablations/layer{n}": ((512, 8 * K, 512), {"memory_layers": (n,)}) for n in (3, 6, 9, 12)},
    **{f"ablations/k{k}": ((512, 8 * K, 512), {"neighbours": k}) for k in (32, 128, 256)},
    "ablations/two_layers": ((512, 8 * K, 512), {"memory_layers": (6, 9)}),
    "ablations/seeds_mem8192_xl512": ((512, 8 * K, 512), {}),
    "ablations/seeds_xl512": ((512, 0, 512), {}),
    "scaling/vanilla_200m": ((2048, 0, 0), {}),
    "scaling/mem8192_200m": ((2048, 8 * K, 0), {}),
    "scaling/vanilla_1b": ((2048, 0, 0), ONE_B),
    "scaling/mem8192_1b": ((2048, 8 * K, 0), {**ONE_B, "memory_layers": (6,)}),
    "scaling/vanilla_8b": ((2048, 0, 0), EIGHT_B),
    "scaling/mem8192_8b": ((2048, 8 * K, 0), {**EIGHT_B, "memory_layers": (12,)}),
    "retrofit/mem65k": ((2048, 64 * K, 0), {**ONE_B, "memory_layers": (6,)}),
    "retrofit/steps20k": ((2048, 64 * K, 0), {**ONE_B, "memory_layers": (6,), "start": "scaling/vanilla_1b"}),
    "retrofit/steps100k": ((2048, 64 * K, 0), {**ONE_B, "memory_layers": (6,), "start": "scaling/vanilla_1b"}),
    "step_time/none": ((512, 0, 512), {}),
    "step_time/mem8192": ((512, 8 * K, 512), {}),
    "step_time/mem65k": ((512, 64 * K, 512), {}),
}
ROWS = {f"table4/{row}+{task}": (sizes, {}) for row, sizes in TABLE4.items() for task in ("arxiv", "isabelle")} | ARXIV
STEPS = {"retrofit/steps100k": 100_000, "step_time/none": 100, "step_time/mem8192": 100, "step_time/mem65k": 100}
MODEL = {
    "vocabulary": 32_000,
    "layers": 12,
    "width": 1024,
    "hidden": 4096,
    "heads": 8,
    "head_width": 128,
    "memory_layers": (9,),
    "neighbours": 32,
    "combination": "gate",
    "normalise": True,
    "sharpness": 1.0,
    "bias": "everywhere",
    "strict": False,
    "null_keys": False,
    "store_padding": False,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "memory_dtype": "bfloat16",
}
# Warm-up over 1,000 steps, then one over the square root of the step: step -> rate, worked out by hand.
RATES = {1: 3.162e-5, 100: 3.162e-3, 1000: 0.03162, 4000: 0.01581, 10_000: 0.01, 100_000: 3.162e-3, 500_000: 1.414e-3}


def rate(experiment, step):
    return float(experiment.optimizer.rate(experiment.steps)(step - 1))


def test_no_row_is_forgotten():
    stems = {stem.removeprefix("memorizing/") for stem in files.rows() if stem.startswith("memorizing/")}
    official = "table4/ctx512_mem8192_xl512_official"
    named = {stem.partition("+")[0] for stem in ROWS}
    assert {stem for stem in stems if not stem.startswith("acceptance/")} == {*named, official}


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_the_papers(row):
    (context, memory, cache), changes = ROWS[row]
    experiment = config.build(files.compose(f"memorizing/{row}"))
    model, start = experiment.model, changes.get("start")
    wanted = {**MODEL, **changes, "segment": context, "memory": memory, "cache": cache}
    wanted.pop("start", None)
    if not memory:
        wanted.pop("memory_layers")
    assert {name: getattr(model, name) for name in wanted} == wanted
    assert model.search.recall == 0.9
    assert experiment.task.name.partition(".")[0] == (row.partition("+")[2] or "arxiv")
    assert (experiment.task.length, experiment.task.predict_first) == (context, True)
    assert experiment.batch_size * context == 2**17
    tuned = 20_000 if start else 100_000 if row.endswith("+isabelle") else 500_000
    assert experiment.steps == STEPS.get(row, tuned)
    assert experiment.start_from == (f"memorizing/{start}" if start else None)
    ((name, evaluation),) = experiment.evaluations.items()
    assert (name, evaluation.model, evaluation.task, evaluation.split) == ("test", model, experiment.task, "test")
    optimizer = experiment.optimizer
    assert type(optimizer).__name__ == "Adafactor"
    assert (optimizer.momentum, optimizer.decay, optimizer.clip) == (0.9, 0.0, 0.0)
    if start:  # the rate at which the run that it begins with ended
        assert rate(experiment, experiment.steps) == pytest.approx(RATES[500_000], rel=0.02)
    else:
        assert {step: pytest.approx(rate(experiment, step), rel=1e-3) for step in RATES} == RATES


def test_the_sibling_is_the_authors_code():
    experiment = config.build(files.compose("memorizing/table4/ctx512_mem8192_xl512_official+arxiv"))
    changes = {"neighbours": 128, "bias": "local", "strict": True, "null_keys": True, "store_padding": True,
               "dropout": 0.05, "attention_dropout": 0.05}  # fmt: skip
    wanted = {**MODEL, **changes, "segment": 512, "memory": 8192, "cache": 512}
    assert {name: getattr(experiment.model, name) for name in wanted} == wanted
    search = experiment.model.search
    assert (search.method, search.buckets, search.winners) == ("buckets", 128, 1)
    assert not experiment.task.predict_first
    # A cosine from 0.01 to a tenth of it.
    assert rate(experiment, 1001) == pytest.approx(0.01, rel=1e-3)
    assert rate(experiment, 250_500) == pytest.approx(0.0055, rel=1e-2)
    assert rate(experiment, 500_000) == pytest.approx(0.001, rel=1e-2)
