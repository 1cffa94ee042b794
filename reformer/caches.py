"""What attention keeps of the tokens that have been read, and one query that looks at it.

A token is read once: its key and value are kept, and the next query meets them in memory. Three
kinds of attention differ in what they keep and whom a query sees,

    Full    everything, and all of it is seen;
    Local   the last (before + 1) chunks, in a ring: position j stands in slot j mod t;
    LSH     everything with its bucket ids, of which a bounded number of candidates is seen.

**The rule of LSH attention for one new token.** In training a query sees, in each round, the past
tokens in its window of the sorted order: those of its own bucket nearest to it, and what else
fills the window. Sorting anew for each token would cost more than it saves, and where chunks begin
depends on tokens that do not exist yet. So, as in the authors' code, past tokens are ranked: those in
the query's bucket in any round come first, newer before older, then all others, newer before
older. The first r c (before + 1 + after), as many as all windows of training hold together, are
attended to in ONE softmax, each once, as in the paper's union of rounds (Eq. 16). With
`within_bucket` (Eq. 4) only the first kind is seen. A token sees itself only if it sees nothing
else. The random directions are the same at every step, so an id is computed once in a token's
life. What may differ from the forward pass: which neighbours beside its own bucket a query sees;
that nothing is counted twice, even without `correct_duplicates`; and `wrap`, which has no meaning.
If the candidates are all tokens, the result is that of full attention.

Ids are compared with all kept ones, a scan of r t integers; keys and values are gathered for the
candidates only. Arrays are stacked over the layers of one place in the pattern, [b,n,...] with n
for the layer: they are carried through the loop over layers and written in place.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer.full import FLOOR, MASKED, shared_keys
from reformer.local import Local
from reformer.lsh import LSH
from reformer.products import einsum

# Slots looked at together. Blocks nobody has reached are never visited, and none is copied whole.
BLOCK = 1024


class Kept(NamedTuple):
    """Of every row b, layer n, head h and slot t."""

    keys: jax.Array  # [b,n,h,t,d], as the logits want them: normalised if they are shared, else scaled
    values: jax.Array  # [b,n,h,t,d]
    buckets: jax.Array | None  # int32 [b,n,h,r,t], LSH only, and only if not all tokens are candidates


def slots(setting, capacity):
    """How many tokens a setting has room for, if there are at most `capacity`; above `BLOCK`, whole blocks."""
    if isinstance(setting, Local):
        return min(capacity, setting.chunk * (setting.before + 1))
    return capacity if capacity <= BLOCK else -(-capacity // BLOCK) * BLOCK


def candidates(setting, capacity):
    """How many tokens a query of LSH attention sees at most; None for all."""
    if not isinstance(setting, LSH) or capacity <= setting.chunk:
        return None
    most = setting.rounds * setting.chunk * (setting.before + 1 + setting.after)
    return min(most, capacity) if most < capacity or setting.within_bucket else None


def empty(setting, capacity, rows, layers, heads, width, dtype):
    """Nothing kept yet."""
    t = slots(setting, capacity)
    vectors = jnp.zeros((rows, layers, heads, t, width), dtype)
    ids = None
    if candidates(setting, capacity) is not None:
        ids = jnp.zeros((rows, layers, heads, setting.rounds, t), jnp.int32)
    return Kept(vectors, vectors, ids)


def fill(setting, kept, layer, q, k, v, buckets, count):
    """Keeps the first tokens of a layer at once: q, k, v [b,h,l,d], k None if shared, buckets [b,h,r,l] or None.

    count: int32 [b], how many of them are real. What stands behind those is kept where there is
    room, and written over before it can be seen.
    """
    arrays = Kept(_keys(setting, q, k), v, None if kept.buckets is None else buckets)
    t = kept.keys.shape[3]
    if q.shape[2] > t:  # a ring keeps the last ones
        at = jnp.maximum(_held(t, count - 1), 0)
        arrays = arrays._replace(
            keys=jnp.take_along_axis(arrays.keys, at[:, None, :, None], axis=2),
            values=jnp.take_along_axis(arrays.values, at[:, None, :, None], axis=2),
        )
    zero = jnp.zeros((), jnp.int32)

    def put(x, new):
        start = (zero, layer, *(zero,) * (x.ndim - 2))
        return jax.lax.dynamic_update_slice(x, new[:, None].astype(x.dtype), start)

    return jax.tree.map(put, kept, arrays)


def look(setting, kept, layer, at, q, k, v, buckets):
    """One token of each row is kept, and looks back: -> (y [b,h,1,d], kept).

    at: int32 [b], its position. q, k, v [b,h,1,d], k None if shared. buckets int32 [b,h,r,1] or None.
    """
    b, _, _, t, _ = kept.keys.shape
    rows = jnp.arange(b)
    keys = kept.keys.at[rows, layer, :, at % t].set(_keys(setting, q, k)[:, :, 0])
    values = kept.values.at[rows, layer, :, at % t].set(v[:, :, 0])
    ids = kept.buckets
    legal = _legal(setting, _held(t, at), at)[:, None]  # [b,1,t]
    if ids is None:
        y, seen = _attend(q[:, :, 0], keys, values, layer, legal, jnp.minimum(at.max(), t - 1))
    else:
        ids = ids.at[rows, layer, :, :, at % t].set(buckets[..., 0])
        index, legal = _ranked(setting, _layer(ids, layer) == buckets, legal)
        where = rows[:, None, None], layer, jnp.arange(q.shape[1])[None, :, None], index
        y, seen = _attend(q[:, :, 0], keys[where][:, None], values[where][:, None], 0, legal, index.shape[2] - 1)
    if setting.shared:
        y = jnp.where(seen[..., None], y, v[:, :, 0])
    return y[:, :, None].astype(v.dtype), Kept(keys, values, ids)


def _layer(x, layer):
    """One layer of x [b,n,...]: [b,...]."""
    return jax.lax.dynamic_index_in_dim(x, layer, axis=1, keepdims=False)


def _keys(setting, q, k):
    return shared_keys(q, setting.scale) if setting.shared else k * jnp.asarray(k.shape[-1] ** -0.5, k.dtype)


def _held(t, last):
    """The position that each slot of a ring holds after `last` int32 [b] was written, negative for none: [b,t]."""
    slot = jnp.arange(t, dtype=jnp.int32)[None]
    return last[:, None] - (last[:, None] - slot) % t


def _legal(setting, held, at):
    """May the query at position `at` [b] see what the slots hold [b,t]?"""
    first = jnp.zeros_like(at)
    if isinstance(setting, Local):
        first = jnp.maximum(0, (at // setting.chunk - setting.before) * setting.chunk)
    last = at - 1 if setting.shared else at
    return (held >= first[:, None]) & (held <= last[:, None])


def _ranked(setting, met, legal):
    """The candidates: met bool [b,h,r,t], legal [b,1,t] -> slots int32 [b,h,s], and which may be seen, bool [b,h,s].

    Slots of LSH attention are positions: later is newer. Ranks stay exact in float32 up to 8M
    tokens, and XLA selects floats without sorting them all.
    """
    (b, h, _, t), most = met.shape, candidates(setting, met.shape[3])
    position = jnp.arange(t, dtype=jnp.float32)[None, None]
    rank = jnp.where(met.any(2), position + t, position)
    rank = jnp.where(legal, rank, -1.0).reshape(b * h, t)
    best, index = jax.lax.top_k(rank[:, ::-1], most)  # newest first, so that few come after better ones: 17x faster
    least = t if setting.within_bucket else 0
    return t - 1 - index.reshape(b, h, most), (best >= least).reshape(b, h, most)


def _attend(q, keys, values, layer, legal, last):
    """Softmax over what is legal: q [b,h,d], keys and values [b,n,h,t,d], legal bool [b,1 or h,t].

    last: the last slot that need be visited. Returns float32 [b,h,d], zero where nothing is legal,
    and whether anything is, bool [b,h].
    """
    (b, h, d), t = q.shape, keys.shape[3]
    block = BLOCK if t % BLOCK == 0 else t

    def slots(x, i):
        start = jnp.asarray([0, layer, 0, i * block, 0], jnp.int32)
        return jax.lax.dynamic_slice(x, start, (b, 1, h, block, d))[:, 0]

    def visit(i, carry):
        top, total, o = carry
        here = jax.lax.dynamic_slice_in_dim(legal, i * block, block, axis=2)
        logits = jnp.where(here, einsum("bhd,bhsd->bhs", q, slots(keys, i)), MASKED)
        peak = jnp.maximum(top, logits.max(-1))
        p, fade = jnp.exp(logits - peak[..., None]), jnp.exp(top - peak)
        part = einsum("bhs,bhsd->bhd", p.astype(values.dtype), slots(values, i))
        return peak, total * fade + p.sum(-1), o * fade[..., None] + part

    start = jnp.full((b, h), FLOOR), jnp.zeros((b, h)), jnp.zeros((b, h, d))
    _, total, o = jax.lax.fori_loop(0, last // block + 1, visit, start)
    return o / jnp.where(total > 0, total, 1.0)[..., None], total > 0
