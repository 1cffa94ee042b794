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


def windows(rule, x):
    """Visible slots [E,...] -> [n,w,...]: each chunk beside its neighbours."""
    c, parts = rule.chunk, rule.before + 1 + rule.after
    x = x.reshape(-1, c, *x.shape[1:])
    n = x.shape[0] - parts + 1
    return jnp.concatenate([x[o : o + n] for o in range(parts)], axis=1)


def fold(rule, x):
    """Transpose of `windows`: [n,w,d] -> [E,d], overlaps added."""
    c, parts = rule.chunk, rule.before + 1 + rule.after
    pieces = (
        jnp.pad(x[:, o * c : (o + 1) * c], ((o, parts - 1 - o), (0, 0), (0, 0)))
        for o in range(parts)
    )
    return sum(pieces).reshape(-1, x.shape[-1])


def visible(rule, plan, r):
    """Slots that round r looks at, and the position in each: int32 [E] both, E = L + (w - c)."""
    rounds, L = plan.order.shape
    margin = rule.before * rule.chunk
    slots = jnp.arange(L + margin + rule.after * rule.chunk, dtype=jnp.int32) + (r * L - margin)
    return slots, take(plan.order.reshape(-1), slots % (rounds * L))


def legal_pairs(rule, plan, r, slots, at):
    """May a query of round r see a slot of its window? bool [n,c,w]."""
    L, c = plan.order.shape[1], rule.chunk
    exists = jnp.ones_like(slots, bool)
    if not rule.wrap:
        exists = (slots >= r * L) & (slots < (r + 1) * L)
    if plan.keep is not None:
        exists &= take(plan.keep, at)
    i = take(plan.order, r).reshape(-1, c, 1)
    # What nobody may see takes a place behind all others: one comparison less per pair.
    j = windows(rule, jnp.where(exists, at, L))[:, None, :]
    legal = j < i if rule.causal else (j != i) & (j < L)
    if rule.within_bucket:
        slots = windows(rule, slots)[:, None, :]
        legal &= slots >= take(take(plan.first, r), i)
        legal &= slots < take(take(plan.last, r), i)
    return legal


def count_sightings(rule, plan, r, at):
    """N_ij: how often, in all rounds together, the query sees the key. float32 [n,c,w]."""
    (rounds, L), c = plan.order.shape, rule.chunk
    n, ring = L // c, rounds * L
    i = take(plan.order, r).reshape(-1, c, 1)
    slots = [windows(rule, take(plan.slot[s], at))[:, None, :] for s in range(rounds)]
    seen = 0
    for s in range(rounds):
        first = take(plan.first[s], i)
        span = take(plan.last[s], i) - first
        if not rule.wrap:
            # As unsigned numbers, slots before `first` are beyond any span.
            seen += ((slots[s] - first).astype(jnp.uint32) < span.astype(jnp.uint32)) * 1.0
            continue
        # A window can reach other rounds, and itself again if it is longer than the ring.
        reached = {
            (s + t) % rounds for t in range(-rule.before // n, (n - 1 + rule.after) // n + 1)
        }
        for t in reached:
            for turn in range(-(-(rule.before + 1 + rule.after) * c // ring)):
                seen += ((slots[t] - first) % ring + turn * ring < span) * 1.0
    return seen
