"""Who sees whom in LSH attention: sorted rounds, chunks, windows. Integers only.

Reformer, section 2. All functions are about ONE sequence of one head, except `make_plan`.
A round has L = n c slots, cut into chunks of c; a chunk looks at the w = (before + 1 + after) c
slots of its window. E = (before + n + after) c slots are visible to a round in all.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import hashing


class Rule(NamedTuple):
    """What is fixed when the computation is compiled; see `lsh.lsh_attention`."""

    chunk: int
    before: int
    after: int
    causal: bool
    within_bucket: bool
    correct_duplicates: bool
    wrap: bool
    dropout: float
    group: int  # queries of one sequence computed at the same time, whole chunks
    at_once: int  # (sequence, head) pairs computed at the same time


class Plan(NamedTuple):
    """Who stands where in each round. Slots count through all rounds: round r owns r L + [0, L)."""

    order: jax.Array  # [...,r,L] position in each slot
    slot: jax.Array  # [...,r,L] slot of each position
    first: jax.Array  # [...,r,L] first slot that each position sees
    last: jax.Array  # [...,r,L] the slot after the last one it sees
    keep: jax.Array | None  # [...,L] False for padding


def make_plan(rule, buckets, keep, count):
    """Sorts every round and writes down what every position sees."""
    c, (r, L) = rule.chunk, buckets.shape[-2:]
    if keep is not None:  # padding gets a bucket of its own, behind all others
        buckets = jnp.where(keep[..., None, :], buckets, count)
    order, slot = hashing.sort_by_bucket(buckets, count + 1)
    begin = jnp.arange(r, dtype=jnp.int32)[:, None] * L
    begin = jnp.broadcast_to(begin, order.shape)
    home = slot // c * c
    first, last = home - rule.before * c, home + (1 + rule.after) * c
    if not rule.wrap:
        first, last = jnp.maximum(first, 0), jnp.minimum(last, L)
    if rule.within_bucket:
        low, high = _borders(jnp.take_along_axis(buckets, order, axis=-1))
        first = jnp.maximum(first, jnp.take_along_axis(low, slot, axis=-1))
        last = jnp.minimum(last, jnp.take_along_axis(high, slot, axis=-1))
    return Plan(order, slot + begin, first + begin, last + begin, keep)


def _borders(ids):
    """Sorted ids [...,L] -> the first slot of each slot's bucket, and the one after its last."""
    L, axis = ids.shape[-1], ids.ndim - 1
    at = jnp.broadcast_to(jnp.arange(L, dtype=jnp.int32), ids.shape)
    change = ids[..., 1:] != ids[..., :-1]
    edge = jnp.ones_like(ids[..., :1], bool)
    low = jnp.where(jnp.concatenate([edge, change], axis), at, 0)
    high = jnp.where(jnp.concatenate([change, edge], axis), at + 1, L)
    return jax.lax.cummax(low, axis), jax.lax.cummin(high, axis, reverse=True)


def take(x, index):
    """Rows of x [L,...] at index [...], which is known to be in bounds."""
    return x.at[index].get(mode="promise_in_bounds")


def spread(rule, x):
    """Visible slots [E,...] -> [n,w,...]: each chunk beside its neighbours."""
    c, parts = rule.chunk, rule.before + 1 + rule.after
    x = x.reshape(-1, c, *x.shape[1:])
    n = x.shape[0] - parts + 1
    return jnp.concatenate([x[o : o + n] for o in range(parts)], axis=1)


def fold(x, step):
    """Adds up windows that overlap: x [n,w,...], each `step` after the one before -> [E,...].

    With step = c this is the transpose of `spread`, E = (n - 1) step + w.
    """
    n, w = x.shape[:2]
    total = 0
    for o in range(0, w, step):
        piece = x[:, o : o + step]
        short = step - piece.shape[1]
        piece = jnp.pad(piece, ((0, 0), (0, short), *((0, 0),) * (x.ndim - 2)))
        piece = piece.reshape(n * step, *x.shape[2:])[: n * step - short]
        after = (n - 1) * step + w - o - piece.shape[0]
        total += jnp.pad(piece, ((o, after), *((0, 0),) * (x.ndim - 2)))
    return total


def visible(rule, plan, r, start):
    """The slots that `rule.group` queries from slot `start` of round r look at: int32 [E]."""
    margin = rule.before * rule.chunk
    first = r * plan.order.shape[1] + start - margin
    return first + jnp.arange(margin + rule.group + rule.after * rule.chunk, dtype=jnp.int32)


def occupants(plan, slots):
    """Position in each slot, int32; slots before the first and after the last wrap around."""
    return take(plan.order.reshape(-1), slots % plan.order.size)


def legal_pairs(rule, plan, r, slots, at):
    """May a query of round r see a slot of its window? bool [n,c,w]."""
    L = plan.order.shape[1]
    own = queries(rule, at)
    # What nobody may see takes a place behind all others: one comparison less per pair.
    places = jnp.arange(L + 1, dtype=jnp.int32)
    if plan.keep is not None:
        places = places.at[:L].set(jnp.where(plan.keep, places[:L], L))
    if not rule.wrap:
        at = jnp.where((slots >= r * L) & (slots < (r + 1) * L), at, L)
    i, j = own[:, :, None], spread(rule, take(places, at))[:, None, :]
    legal = j < i if rule.causal else (j != i) & (j < L)
    if rule.within_bucket:
        slots = spread(rule, slots)[:, None, :]
        legal &= slots >= take(take(plan.first, r), own)[:, :, None]
        legal &= slots < take(take(plan.last, r), own)[:, :, None]
    return legal


def queries(rule, x):
    """The queries among visible slots: [E,...] -> [n,c,...]."""
    margin = rule.before * rule.chunk
    return x[margin : margin + rule.group].reshape(-1, rule.chunk, *x.shape[1:])


def count_sightings(rule, plan, at):
    """N_ij: how often, in all rounds together, the query sees the key. int32 [n,c,w]."""
    (rounds, L), c = plan.order.shape, rule.chunk
    n, ring = L // c, rounds * L
    own = queries(rule, at)
    slots = [spread(rule, take(plan.slot[s], at))[:, None, :] for s in range(rounds)]
    seen = 0
    for s in range(rounds):
        first = take(plan.first[s], own)[:, :, None]
        span = take(plan.last[s] - plan.first[s], own)[:, :, None]
        if not rule.wrap:
            # As unsigned numbers, slots before `first` are beyond any span.
            met = (slots[s] - first).astype(jnp.uint32) < span.astype(jnp.uint32)
            seen += met.astype(jnp.int32)
            continue
        # A window can reach other rounds, and itself again if it is longer than the ring.
        width = (rule.before + 1 + rule.after) * c
        reached = {(s + t) % rounds for t in range(-rule.before // n, (n - 1 + rule.after) // n + 1)}
        for t in reached:
            for turn in range(-(-width // ring)):
                seen += ((slots[t] - first) % ring + turn * ring < span).astype(jnp.int32)
    return seen
