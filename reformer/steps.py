"""How much is computed at a time: chunks of one sequence, sequences and heads of a batch.

The results do not depend on it. Accelerators take everything at once; on CPU small arrays stay
in the caches, and memory stays bounded however long the sequence.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Positions at a time on CPU.
CPU_BLOCK = 4096


class Steps(NamedTuple):
    """Whole groups of whole chunks; `group` and `length` count positions."""

    chunk: int  # not longer than the sequence
    group: int  # computed at the same time
    length: int  # a multiple of `group`, at least the sequence's
    at_once: int  # (sequence, head) pairs computed at the same time


def make_steps(batch, heads, length, chunk, block=None, whole_chunks=False):
    """Cuts `length` positions so that about `block` are computed at a time (None: see above).

    whole_chunks: pad no further than the last chunk, even if groups then grow.
    """
    if block is None:
        block = CPU_BLOCK if jax.default_backend() == "cpu" else batch * heads * length
    chunk = min(chunk, length)
    chunks = -(-length // chunk)
    each = -(-chunks // min(chunks, -(-length // block)))  # chunks of a group
    if whole_chunks and chunks % each:
        each = chunks
    group = each * chunk
    return Steps(chunk, group, -(-chunks // each) * group, max(1, block // length))


def over_pairs(steps, function, *arrays):
    """`function` of every (sequence, head) of arrays [b,h,...], `at_once` at the same time."""
    b, h = arrays[0].shape[:2]
    if steps.at_once >= b * h:
        return jax.vmap(jax.vmap(function))(*arrays)
    arrays = jax.tree.map(lambda x: x.reshape(b * h, *x.shape[2:]), arrays)
    size = None if steps.at_once == 1 else steps.at_once
    out = jax.lax.map(lambda xs: function(*xs), arrays, batch_size=size)
    return jax.tree.map(lambda x: x.reshape(b, h, *x.shape[1:]), out)


def over_groups(steps, function):
    """`function` of the first position of every group, one after the other; results stacked."""
    if steps.group == steps.length:
        return jax.tree.map(lambda x: x[None], function(0))
    return jax.lax.map(function, jnp.arange(0, steps.length, steps.group, dtype=jnp.int32))


def dropout_factors(steps, rate, key, start, width):
    """Dropout of one group's weights: 0 or 1 / (1 - rate), float32 [n,c,width].

    Each chunk has a key of its own, so the mask does not depend on the grouping. One mask
    serves the whole batch and all heads, as in Flax's attention.
    """
    chunks = start // steps.chunk + jnp.arange(steps.group // steps.chunk)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, chunks)
    shape = (steps.chunk, width)
    return jax.vmap(lambda k: jax.random.bernoulli(k, 1 - rate, shape))(keys) / (1 - rate)
