"""Metrics: one division at the end, units in the names."""

import math

import numpy as np
import pytest

from tasks import metrics

ALL = [value for value in vars(metrics).values() if isinstance(value, metrics.Metric)]


def test_spelled_out():
    sums = {"nats": 6.0, "correct": 3.0, "weights": 4.0}
    assert metrics.ACCURACY.compute(sums) == 75.0
    assert metrics.NATS_PER_TOKEN.compute(sums) == 1.5
    assert metrics.BITS_PER_BYTE.compute(sums) == pytest.approx(1.5 / math.log(2), rel=1e-15)
    assert metrics.BITS_PER_DIM.compute(sums) == metrics.BITS_PER_BYTE.compute(sums)
    assert metrics.BITS_PER_BYTE_OF_TEXT.compute({**sums, "bytes": 12.0}) == pytest.approx(0.5 / math.log(2), rel=1e-15)
    assert metrics.PERPLEXITY_PER_TOKEN.compute(sums) == pytest.approx(math.exp(1.5), rel=1e-15)


def test_a_uniform_guess_over_256_bytes_costs_8_bits():
    nats = np.full(1000, math.log(256))
    assert metrics.BITS_PER_BYTE.compute({"nats": nats.sum(), "weights": 1000}) == pytest.approx(8, rel=1e-12)


def test_totals_do_not_depend_on_how_positions_were_batched():
    rng = np.random.default_rng(0)
    nats, weights = rng.uniform(0, 9, 37), rng.integers(0, 2, 37).astype(float)
    whole = metrics.NATS_PER_TOKEN.compute({"nats": (nats * weights).sum(), "weights": weights.sum()})
    for size in (1, 5, 36):
        parts = [slice(start, start + size) for start in range(0, 37, size)]
        totals = {
            "nats": sum((nats[part] * weights[part]).sum() for part in parts),
            "weights": sum(weights[part].sum() for part in parts),
        }
        assert metrics.NATS_PER_TOKEN.compute(totals) == pytest.approx(whole, rel=1e-13)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_every_metric_says_its_unit_and_direction(metric):
    assert metric.unit and metric.better == ("higher" if metric is metrics.ACCURACY else "lower")
    if "bits" in metric.name or "perplexity" in metric.name or "nats" in metric.name:
        assert "_per_" in metric.name
    with pytest.raises(ValueError, match="no position was counted"):
        metric.compute({"nats": 0.0, "correct": 0.0, "weights": 0.0, "bytes": 0.0})
    with pytest.raises(ValueError, match="needs the sums"):
        metric.compute({"weights": 1.0})


def test_a_diverged_model_has_infinite_perplexity():
    assert metrics.PERPLEXITY_PER_TOKEN.compute({"nats": 1e6, "weights": 1.0}) == math.inf
    assert math.isnan(metrics.PERPLEXITY_PER_TOKEN.compute({"nats": math.nan, "weights": 1.0}))
