"""Looking inside: what a model retrieved from its memory on a document, and what that was worth (section 4.6).

Positions count a document's inputs from 0. A retrieved pair was computed where its position was read; the
query that retrieved it predicts the target of its own position. All results are NumPy arrays.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import numpy as np


class Read(NamedTuple):
    """What a model did on one segment of one document, padding left out; m counts memory layers, from 0 for none."""

    nats: np.ndarray  # [l] float32, of the targets
    source: np.ndarray  # [m,h,l,k] int32, positions retrieved, best first; -1 where the memory held fewer
    weight: np.ndarray  # [m,h,l,k] float32, attention to each in the memory's own softmax
    share: np.ndarray  # [m,h,l] float32, of the memory in the output of its layer
    recall: np.ndarray  # [m,h,l] float32, share of the k best that was found

    def strongest(self, count):
        """The `count` pairs of every query that got most attention: source and weight, both [m,h,l,count]."""
        order = np.argsort(-self.weight, axis=-1, kind="stable")[..., :count]
        return tuple(np.take_along_axis(x, order, axis=-1) for x in (self.source, self.weight))


def read(model, params, segments):
    """Runs a Model over a document and yields a `Read` of every segment, in order.

    segments: batches of one slot, those of one document, the first with document_start 1.
    """
    state, first = model.start(1), 0
    for batch in segments:
        scores, state, looks = _apply(model, params, batch, state)
        scores, looks = jax.device_get((scores, looks))
        real = np.asarray(batch["decoder_segment_ids"])[0] > 0

        def stack(name, *more, looks=looks, real=real):
            empty = np.zeros((0, model.heads, len(real), *more), np.float32)
            return np.concatenate([empty, *(getattr(look, name) for look in looks)])[:, :, real]

        position = first + np.flatnonzero(real)[:, None]
        k = model.neighbours
        before = position - 1 - stack("age", k).astype(np.int64)  # an age counts the tokens between
        source = np.where(stack("real", k) > 0, before, -1).astype(np.int32)
        weight = np.where(source < 0, np.float32(0), stack("weight", k))
        yield Read(scores["nats"][0][real], source, weight, stack("share"), stack("recall"))
        first += len(position)


@partial(jax.jit, static_argnums=0, donate_argnums=3)
def _apply(model, params, batch, state):
    return model.apply(params, batch, state, inspect=True)


def resized(model, params, memory):
    """The model with a memory of another size, 0 for none -> (Model, its parameters, which are the same).

    Raises ValueError for a size that the model cannot have.
    """
    other = dataclasses.replace(model, memory=memory)
    return other, other.adopt(params, model)
