"""Local attention: a segment looks at itself and at the cache of the segment before (section 3).

The score of query i and key j is |scale_h| (q_i.k_j + bias_h(i - j)): with normalised queries and
keys the learned scale of a head is its temperature, and T5's relative bias is learned per head.
Only i - j counts, so the bias of one block of queries is that of every block.

Where a row may look at nothing the output is zero and the normaliser `FLOOR`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from memorizing.products import einsum

# Masked scores lie below the floor, and no maximum does: exp(MASKED - maximum) is exactly 0.
FLOOR = -1e29
MASKED = -1e30

BIAS_BUCKETS, BIAS_DISTANCE = 32, 128


class Past(NamedTuple):
    """Keys and values of the W positions before a segment, and which of them may be looked at."""

    keys: jax.Array  # [b,h,W,d], as they were scored: normalised, without bias
    values: jax.Array  # [b,h,W,e]
    real: jax.Array  # [b,W] bool


class Attended(NamedTuple):
    """A softmax that can still be joined with another: outputs and normalisers."""

    output: jax.Array  # [b,h,l,e] float32
    lse: jax.Array  # [b,h,l] float32, log of the sum of exp(scores)


def unit(x):
    """x / |x| over the last axis, with the authors' 1e-6 under the root, in float32 and back."""
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.sum(y * y, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def bias_bucket(distance):
    """T5's bucket of a query's distance to an earlier key: whole numbers -> int32, 0 to 31.

    Each distance below 16 has its own; up to 128 buckets widen with the logarithm; all beyond share
    the last. Later keys count as distance 0 (they are masked).
    """
    distance = np.maximum(distance, 0)
    half = BIAS_BUCKETS // 2
    steps = np.log(np.maximum(distance, half) / half) / np.log(BIAS_DISTANCE / half)
    far = half + np.floor(half * steps + 1e-9).astype(np.int32)
    return np.where(distance < half, distance, np.minimum(far, BIAS_BUCKETS - 1)).astype(np.int32)


def position_bias(table, c, w):
    """table [h,32] -> [h,c,w]: c queries and w keys, the last query aligned with the last key."""
    n = c + w - 1
    of_distance = table[:, bias_bucket(w - 1 - np.arange(n))]
    # Row i is the same list, shifted by c - 1 - i. Read with a row length of n - 1 and one spare
    # entry, a repeated list shifts itself; gathers would be slow backwards.
    padded = jnp.pad(of_distance, ((0, 0), (0, 1)))
    rows = jnp.broadcast_to(padded[:, None], (table.shape[0], c, n + 1)).reshape(table.shape[0], -1)
    return rows[:, : c * n].reshape(-1, c, n)[:, :, c - 1 :]


def advance(past, k, v, real):
    """The cache for the next segment: the last W positions of cache and segment, without gradient."""
    W = past.real.shape[1]
    last = lambda old, new, axis: jax.lax.slice_in_dim(  # noqa: E731
        jnp.concatenate([old, new.astype(old.dtype)], axis), new.shape[axis], new.shape[axis] + W, axis=axis
    )
    cache = Past(last(past.keys, k, 2), last(past.values, v, 2), last(past.real, real, 1))
    return jax.lax.stop_gradient(cache)


def forget(past, start, null_keys=False):
    """Empties the caches of slots where start [b] says that a document begins.

    What was there is masked or, with null_keys (the authors' code), becomes zeros that count: such a key
    scores the bias alone and adds nothing, a learned share of attention that goes nowhere.
    """
    start = start.astype(bool)
    keys, values = (jnp.where(start[:, None, None, None], 0, x) for x in (past.keys, past.values))
    return Past(keys, values, jnp.where(start[:, None], null_keys, past.real))


def attend(q, k, v, scale, table=None, past=None, real=None, *, strict=False, block=128, dropout=0.0, key=None):
    """Causal attention within the segment and a window before it -> Attended.

    q, k [b,h,l,d], v [b,h,l,e]: of the segment. scale [h]: of the scores, not negative.
    table [h,32]: of the relative bias, None for none.
    past: the cache. A query sees the W positions before it, and itself; None: all of its segment
        before it.
    real: bool [b,l], False for padding, which nobody sees. None: no padding.
    strict: a position does not see itself (the authors' code).
    block: queries at a time; the result does not depend on it. Scores are recomputed backwards.
    dropout: share of the normalised weights dropped; one mask for the whole batch.
    """
    b, h, length, _ = q.shape
    c = min(block, length)
    n = -(-length // c)
    real = jnp.ones((b, length), bool) if real is None else real
    # Without a cache the keys before the segment are padding, so that every block sees as many.
    W = (n - 1) * c if past is None else past.real.shape[1]
    end = n * c - length
    if past is None:
        k, v = (jnp.pad(x, ((0, 0), (0, 0), (W, end), (0, 0))) for x in (k, v))
        real = jnp.pad(real, ((0, 0), (W, end)))
    else:
        k, v = (
            jnp.pad(jnp.concatenate([old.astype(x.dtype), x], axis=2), ((0, 0), (0, 0), (0, end), (0, 0)))
            for old, x in ((past.keys, k), (past.values, v))
        )
        real = jnp.pad(jnp.concatenate([past.real, real], axis=1), ((0, 0), (0, end)))
    w = W + c
    distance = W + np.arange(c)[:, None] - np.arange(w)[None]
    window = (distance >= (1 if strict else 0)) & (distance <= W if past is not None else True)
    bias = None if table is None else position_bias(table, c, w)

    @jax.checkpoint
    def one_block(inputs):
        start, q = inputs
        keys, values = (jax.lax.dynamic_slice_in_dim(x, start, w, axis=2) for x in (k, v))
        seen = window[None] & jax.lax.dynamic_slice_in_dim(real, start, w, axis=1)[:, None]
        x = einsum("bhid,bhjd->bhij", q, keys)
        x = (x if bias is None else x + bias[None]) * scale[None, :, None, None]
        p, lse = softmax(jnp.where(seen[:, None], x, MASKED))
        if dropout:
            kept = jax.random.bernoulli(jax.random.fold_in(key, start), 1 - dropout, p.shape[1:])
            p = jnp.where(kept[None], p / (1 - dropout), 0.0)
        return einsum("bhij,bhje->bhie", p.astype(values.dtype), values), lse

    starts = jnp.arange(0, n * c, c, dtype=jnp.int32)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, end), (0, 0))).reshape(b, h, n, c, -1)
    o, lse = jax.lax.map(one_block, (starts, jnp.moveaxis(q, 2, 0)))
    o, lse = (jnp.moveaxis(x, 0, 2).reshape(b, h, n * c, *x.shape[4:])[:, :, :length] for x in (o, lse))
    return Attended(o, lse)


def softmax(x):
    """Over the last axis of masked scores [...,w] -> weights [...,w], log-normaliser [...].

    Where everything is masked the weights are zero and the normaliser is `FLOOR`.
    """
    top = jnp.maximum(jax.lax.stop_gradient(x.max(-1)), FLOOR)
    p = jnp.exp(x - top[..., None])
    total = p.sum(-1)
    safe = jnp.where(total > 0, total, 1.0)
    return p / safe[..., None], top + jnp.log(safe)
