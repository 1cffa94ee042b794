"""Chunks and their windows, and who sees whom in LSH attention. Integers only.

All functions are about ONE sequence of one head, except `make_plan`. A sorted round has
L = n c slots, cut into chunks of c; a chunk looks at the w = (before + 1 + after) c slots of
its window, and a group of chunks at E slots in all: itself and a margin at either end.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import hashing
from reformer.steps import Steps


class Window(NamedTuple):
    """What a chunk looks at: itself, `before` chunks before it and `after` after it."""

    before: int
    after: int
    steps: Steps

    @property
    def margin(self):
        """Slots visible before the first query."""
        return self.before * self.steps.chunk

    @property
    def width(self):
        """w, the keys of a window."""
        return (self.before + 1 + self.after) * self.steps.chunk

    @property
    def visible(self):
        """E, the slots that a group of queries looks at."""
        return self.steps.group + (self.before + self.after) * self.steps.chunk


def take(x, index):
    """Rows of x [L,...] at index [...], which is known to be in bounds."""
    return x.at[index].get(mode="promise_in_bounds")


def queries(window, x):
    """The queries among visible slots: [E,...] -> [n,c,...]."""
    x = x[window.margin : window.margin + window.steps.group]
    return x.reshape(-1, window.steps.chunk, *x.shape[1:])


def spread(window, x):
    """Visible slots [E,...] -> [n,w,...]: each chunk beside its neighbours."""
    c, parts = window.steps.chunk, window.before + 1 + window.after
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


class Rule(NamedTuple):
    """What is fixed when the computation is compiled; see `lsh.lsh_attention`."""

    window: Window
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
    window, (r, L) = rule.window, buckets.shape[-2:]
    c = window.steps.chunk
    if keep is not None:  # padding gets a bucket of its own, behind all others
        buckets = jnp.where(keep[..., None, :], buckets, count)
    order, slot = hashing.sort_by_bucket(buckets, count + 1)
    begin = jnp.arange(r, dtype=jnp.int32)[:, None] * L
    begin = jnp.broadcast_to(begin, order.shape)
    home = slot // c * c
    first, last = home - window.margin, home - window.margin + window.width
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


def visible(rule, plan, r, start):
    """The slots that the group from slot `start` of round r looks at: int32 [E]."""
    first = r * plan.order.shape[1] + start - rule.window.margin
    return first + jnp.arange(rule.window.visible, dtype=jnp.int32)


def occupants(plan, slots):
    """Position in each slot, int32; slots before the first and after the last wrap around."""
    return take(plan.order.reshape(-1), slots % plan.order.size)


def legal_pairs(rule, plan, r, slots, at):
    """May a query of round r see a slot of its window? bool [n,c,w]."""
    L = plan.order.shape[1]
    own = queries(rule.window, at)
    # What nobody may see takes a place behind all others: one comparison less per pair.
    places = jnp.arange(L + 1, dtype=jnp.int32)
    if plan.keep is not None:
        places = places.at[:L].set(jnp.where(plan.keep, places[:L], L))
    if not rule.wrap:
        at = jnp.where((slots >= r * L) & (slots < (r + 1) * L), at, L)
    i, j = own[:, :, None], spread(rule.window, take(places, at))[:, None, :]
    legal = j < i if rule.causal else (j != i) & (j < L)
    if rule.within_bucket:
        slots = spread(rule.window, slots)[:, None, :]
        legal &= slots >= take(take(plan.first, r), own)[:, :, None]
        legal &= slots < take(take(plan.last, r), own)[:, :, None]
    return legal


def count_sightings(rule, plan, at):
    """N_ij: how often, in all rounds together, the query sees the key. int32 [n,c,w]."""
    (rounds, L), window = plan.order.shape, rule.window
    n, ring = L // window.steps.chunk, rounds * L
    own = queries(rule.window, at)
    slots = [spread(rule.window, take(plan.slot[s], at))[:, None, :] for s in range(rounds)]
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
        reached = {(s + t) % rounds for t in range(-window.before // n, (n - 1 + window.after) // n + 1)}
        for t in reached:
            for turn in range(-(-window.width // ring)):
                seen += ((slots[t] - first) % ring + turn * ring < span).astype(jnp.int32)
    return seen
