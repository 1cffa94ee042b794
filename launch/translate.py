"""Translation: sentences decoded with beam search, and scored with BLEU as a record stores it."""

import logging

import jax
import numpy as np

from launch import processes, sharding
from tasks.bleu import bleu
from tasks.subwords import EOS

_logger = logging.getLogger("launch")

SHORTEST = 32  # columns of the shortest batch; the next ones are twice as long each


def evaluate_translation(params, evaluation, *, split=None, on_batch=lambda done: None):
    """Translates a split and compares with its references.

    Args:
      params: the trained parameters.
      evaluation: a ``Translation``.
      split: watched while training goes on, with ``watch_examples``; None is the evaluation's own, with ``examples``.
      on_batch: called with the number of sentences done so far.

    Returns:
      A dict as records store it (see ``launch.evaluate.evaluate``; the weight is the number of sentences). Beside the
      scores ``bleu_of_source`` is that of leaving every sentence as it is: what a model must beat to translate at all.
    """
    watching = split is not None
    split = split or evaluation.split
    pairs = evaluation.task.references(split)[: evaluation.watch_examples if watching else evaluation.examples]
    sources, references = zip(*pairs, strict=True)
    scores = bleu(sentences(params, evaluation, sources, on_batch), references)
    copied = bleu(sources, references)["bleu"]
    scores = {**scores, "bleu_of_source": copied}
    return {
        "split": split,
        "draws": 1,
        "examples": len(sources),
        "weight": float(len(sources)),
        "metrics": {
            name: {"value": score.value, "unit": "BLEU", "better": "higher", "spread": 0.0, "per_draw": [score.value]}
            for name, score in scores.items()
        },
        "signatures": {name: score.signature for name, score in scores.items()},
    }


def sentences(params, evaluation, sources, on_batch=lambda done: None):
    """The translation of each source sentence, in their order. See ``Translation`` for what decides them."""
    model, task, rows = evaluation.model, evaluation.task, evaluation.batch_size
    mesh = sharding.mesh_of(params)
    place = sharding.rows(mesh, sharding.divides(mesh, rows))
    search = {"beams": evaluation.beam, "alpha": evaluation.alpha, "extra_length": evaluation.extra_length}
    found, done = [""] * len(sources), 0
    for length, numbers, ids in batches(task, sources, rows * jax.process_count(), model.length):
        tokens = np.zeros((rows * jax.process_count(), length), np.int32)
        for row, sentence in enumerate(ids):
            tokens[row, : len(sentence)] = sentence
        tokens[len(ids) :] = tokens[len(ids) - 1]  # an empty source would have no end, and be searched to the last
        mine = slice(rows * jax.process_index(), rows * (jax.process_index() + 1))
        batch = sharding.put_batch({"tokens": tokens[mine], "real": tokens[mine] != 0}, place)
        best = model.translate(params, batch["tokens"], batch["real"], eos=EOS, **search).tokens[:, 0]
        for number, translation in zip(
            numbers, processes.everywhere(best), strict=False
        ):  # without the rows that fill up
            found[number] = task.decode(translation)
        done += len(numbers)
        on_batch(done)
    return found


def batches(task, sources, rows, longest):
    """(columns, numbers of the sentences, their ids) of batches of at most ``rows`` sentences of like length."""
    ids = [task.encode(source) for source in sources]
    if long := [number for number, sentence in enumerate(ids) if len(sentence) > longest]:
        _logger.warning(
            "%s: %d sentences are longer than the model's %d positions and are cut", task.name, len(long), longest
        )
        ids = [np.append(sentence[: longest - 1], EOS) if len(sentence) > longest else sentence for sentence in ids]
    shortest = getattr(task, "shortest", SHORTEST)
    columns = [min(longest, shortest * 2 ** int(np.ceil(np.log2(max(1.0, len(s) / shortest))))) for s in ids]
    for length in sorted(set(columns)):
        numbers = [number for number, mine in enumerate(columns) if mine == length]
        for first in range(0, len(numbers), rows):
            part = numbers[first : first + rows]
            yield length, part, [ids[number] for number in part]
