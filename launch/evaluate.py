"""Evaluation: one function, used by the training loop and on its own.

A metric is a sum divided by a weight, once, at the end. Sums are taken per example on the device and added in float64
here, so the result does not depend on the batch size or on the number of devices.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from launch import processes, sharding
from launch.experiment import Translation

SUMS = ("nats", "correct", "weights")


def example_sums(scores):
    """Per-example sums of a model's scores: {nats, correct, weights}, each [b]."""
    weights = scores["weights"]
    return {
        "nats": jnp.sum(scores["nats"] * weights, axis=1),
        "correct": jnp.sum(scores["correct"] * weights, axis=1),
        "weights": jnp.sum(weights, axis=1),
    }


@functools.partial(jax.jit, static_argnames=("model",))
def _score(params, batch, state, key, *, model):
    scores, state = model.apply(params, batch, state, key, train=False)
    real = jnp.any(batch["decoder_segment_ids"] > 0, axis=1)
    return example_sums(scores) | {"examples": real}, state


@functools.partial(jax.jit, static_argnames=("model",))
def _look(params, batch, state, key, *, model):
    return model.measure(params, batch, state, key), jnp.sum(batch["decoder_loss_weights"])


def evaluate(params, evaluation, *, seed, split=None, draws=None, on_batch=lambda done: None):
    """Scores ``params`` under one ``Evaluation``, or ``Translation`` (see ``launch.translate``).

    Args:
      params: the trained parameters.
      evaluation: an ``Evaluation``; ``split`` and ``draws`` override its own.
      seed: decides the keys of the draws, and nothing else.
      on_batch: called with the number of examples done so far.

    Returns:
      A dict as records store it: split, draws, examples, weight (positions counted, per draw), and for each metric
      value, unit, better, spread (standard deviation over draws), per_draw. Figures of `looks` follow the metrics, for
      the first draw; none of them is better or worse.

    Raises:
      ValueError: the split holds nothing to count, or a sum is not finite.
    """
    if isinstance(evaluation, Translation):
        from launch.translate import evaluate_translation

        return evaluate_translation(params, evaluation, split=split, on_batch=on_batch)
    split = split or evaluation.split
    draws = draws or evaluation.draws
    model, task = evaluation.model, evaluation.task
    mesh = sharding.mesh_of(params)
    evenly = sharding.divides(mesh, evaluation.batch_size)
    model, rows = sharding.spread(model, mesh, evenly), sharding.rows(mesh, evenly)
    keys = [jax.random.fold_in(jax.random.key(seed), draw) for draw in range(draws)]
    states = [sharding.start(model, mesh, evaluation.batch_size)] * draws
    totals = np.zeros((draws, len(SUMS)), np.float64)
    examples, looks, looked = 0, evaluation.looks if hasattr(model, "measure") else 0, []
    number, readers = sharding.reader(mesh) if evenly else (0, 1)
    for batch in task.feed(split, evaluation.batch_size // readers, 0, (number, readers)):
        batch = sharding.put_batch(batch, rows)
        if len(looked) < looks:
            looked.append(jax.device_get(_look(params, batch, states[0], keys[0], model=model)))
        results = []
        for draw in range(draws):  # queued together: the device works on while the host adds
            sums, states[draw] = _score(params, batch, states[draw], keys[draw], model=model)
            results.append(sums)
        results = processes.everywhere(results)
        examples += int(results[0]["examples"].sum())
        for draw, sums in enumerate(results):
            totals[draw] += [np.sum(sums[name], dtype=np.float64) for name in SUMS]
        on_batch(examples)
    summary = _summary(totals, task, split, draws, examples)
    summary["metrics"].update(_figures(looked, draws))
    return summary


def _figures(looked, draws):
    """The measured figures of some batches, each batch by its weight, as records store them."""
    total = sum(float(weight) for _, weight in looked)
    figures = {}
    for name in looked[0][0] if total else ():
        value = sum(float(found[name]) * float(weight) for found, weight in looked) / total
        figures[name] = {"value": value, "unit": "", "better": "none", "spread": 0.0, "per_draw": [value] * draws}
    return figures


def _summary(totals, task, split, draws, examples):
    if not np.all(np.isfinite(totals)):
        raise ValueError(f"evaluation of {task.name}/{split} met a loss that is not finite")
    if totals[0, SUMS.index("weights")] == 0:
        raise ValueError(f"{task.name}/{split} has no position with a loss weight; nothing can be measured")
    metrics = {}
    for metric in task.metrics:
        per_draw = [float(metric.compute(task.totals(split, dict(zip(SUMS, row, strict=True))))) for row in totals]
        metrics[metric.name] = {
            "value": float(np.mean(per_draw)),
            "unit": metric.unit,
            "better": metric.better,
            "spread": float(np.std(per_draw, ddof=1)) if draws > 1 else 0.0,
            "per_draw": per_draw,
        }
    weight = float(totals[0, SUMS.index("weights")])
    return {"split": split, "draws": draws, "examples": examples, "weight": weight, "metrics": metrics}
