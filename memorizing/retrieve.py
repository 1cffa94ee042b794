"""Retrieval: the k stored keys with the largest dot product, for every query (section 3).

Four ways, with the same results but for the share of the k best that they find:

    exact        a knock-out tournament of maxima, made for processors
    sorted       `lax.top_k`, exact
    buckets      one or two winners per bucket, entry i in bucket i mod L; with the recall of `recall`
    approximate  `lax.approx_max_k`, which only TPUs speed up

Every way finds the best entry itself, on every backend. Memory is visited block by block, so
scores of a whole large memory never exist at once. Scores are float32; in the first and third way
they have a column per query, and maxima over rows are then elementwise. t are the queries of a tile,
n the entries of a block, K is k rounded up to a power of two.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from memorizing import checks, ranking
from memorizing.products import einsum, over_groups

# The score of what is not there. Finite, since maxima over infinities have been miscompiled.
EMPTY = -1e30
METHODS = ("auto", "exact", "sorted", "buckets", "approximate")
FAN = 4  # competitors in a match of the tournament


@dataclass(frozen=True)
class Search:
    """How neighbours are found.

    method: one of METHODS; see `choose` for auto.
    recall: share of the k best that buckets and approximate find on average, at least.
    buckets, winners: of the bucketed search; None is the smallest power of two with that recall.
    block: entries of the memory scored at a time. tile: queries scored at a time (None: on CPU 128,
        so that a block of scores stays in the cache, elsewhere all).
    """

    method: str = "auto"
    recall: float = 0.9
    buckets: int | None = None
    winners: int = 1
    block: int = 8192
    tile: int | None = None

    def __post_init__(self):
        checks.choice("method", self.method, METHODS)
        checks.choice("winners", self.winners, (1, 2))
        for name in ("block", "buckets", "tile"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        if not 0 < self.recall < 1:
            raise ValueError(f"recall is {self.recall!r}; it is a share, 0 < recall < 1; method='exact' finds all")


class Found(NamedTuple):
    """The neighbours of every query, best first."""

    index: jax.Array  # [b,h,l,k] int32, entry of the memory; 0 <= index < M even where nothing is
    score: jax.Array  # [b,h,l,k] float32, q.k; EMPTY where nothing is
    real: jax.Array  # [b,h,l,k] bool, False where the memory holds fewer than k entries


def find(search, k, q, keys, size):
    """The k nearest entries: q [b,h,l,d], keys [b,h,M,d], size int32 [b] valid entries -> Found.

    Entries from `size` on are never found. No gradient flows: the choice is piecewise constant, and
    whatever is done with the entries found has its own (`memory.read`).
    """
    if q.ndim != 4 or keys.shape[:2] != q.shape[:2] or keys.shape[3:] != q.shape[3:]:
        raise ValueError(f"queries and keys must be [b,h,l,d] and [b,h,M,d]; got {q.shape} and {keys.shape}")
    if k > keys.shape[2]:
        raise ValueError(f"k is {k} but the memory has only {keys.shape[2]} entries; make it larger or k smaller")
    size = jnp.broadcast_to(size[:, None], q.shape[:2])
    score, index = _find(choose(search, k, keys.shape[2]), k, q, keys, size)
    return Found(jnp.minimum(index, keys.shape[2] - 1), score, score > EMPTY / 2)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _find(search, k, q, keys, size):
    """Scores and entries, both [b,h,l,k]. With stop_gradient alone JAX would still differentiate the loops inside."""
    if jax.default_backend() == "cpu":
        results = over_groups(partial(_one_memory, search, k), q, keys, size)
    else:
        results = _all_memories(search, k, q, keys, size)
    return tuple(x.swapaxes(2, 3) for x in results)


@_find.defjvp
def _find_derivative(search, k, primals, tangents):
    score, index = _find(search, k, *primals)
    return (score, index), (jnp.zeros_like(score), np.zeros(index.shape, jax.dtypes.float0))


def choose(search, k, capacity, backend=None):
    """`search` with method, buckets, block and tile filled in for a memory of `capacity` entries.

    auto: approximate on TPU; buckets on other accelerators, where sorting whole rows takes longer
    than scoring them; exact on CPU, where it costs no more than buckets. Small memories are sorted.
    """
    backend = backend or jax.default_backend()
    method, K = search.method, ranking.ceiling(k)
    if method == "auto":
        method = {"cpu": "exact", "tpu": "approximate"}.get(backend, "buckets")
        if capacity <= 16 * K:
            method = "sorted"
    values = {"method": method, "tile": search.tile or (128 if backend == "cpu" else None)}
    block = min(search.block, capacity)
    if method == "buckets":
        values["buckets"] = L = search.buckets or buckets_for(search.recall, k, search.winners)
        if L % K:
            raise ValueError(f"buckets is {L}; for k = {k} it must be a multiple of {K}")
        block = L << math.ceil(math.log2(max(1, block / L)))
    if method == "exact":
        unit = K * FAN ** _height(block, K)
        block = -(-block // unit) * unit
    return replace(search, block=block, **values)


def recall(k, buckets, winners=1):
    """Expected share of the k best that are among the winners, for entries in random order.

    The number of them in one of L buckets is Binomial(k, 1/L), of which at most `winners` are kept:
    L E[min(n, winners)] / k. For one winner this is L (1 - (1 - 1/L)^k) / k.
    """
    p = 1 / buckets
    kept = sum(1 - sum(math.comb(k, n) * p**n * (1 - p) ** (k - n) for n in range(w)) for w in range(1, winners + 1))
    return buckets * kept / k


def buckets_for(target, k, winners=1):
    """The smallest power of two of buckets whose `recall` reaches the target."""
    L = ranking.ceiling(k)
    while recall(k, L, winners) < target:
        L *= 2
    return L


# ---- block by block ------------------------------------------------------------------------


def _one_memory(search, k, q, keys, size):
    """q [l,d], keys [M,d], size [] -> score, index [k,l]: all blocks of one memory after the other."""
    blocks = -(-keys.shape[0] // search.block)
    keys = jnp.pad(keys, ((0, blocks * search.block - keys.shape[0]), (0, 0)))
    tiles, best = _begin(search, k, q)
    if blocks == 1:
        return _end(k, q, _visit(search, 0, tiles, size, keys, *best))

    # Blocks beyond the last entry are not visited: a memory that is filling costs what it holds.
    def one(n, best):
        first = n * search.block
        return _visit(search, first, tiles, size, jax.lax.dynamic_slice_in_dim(keys, first, search.block), *best)

    visits = jnp.minimum(-(-size // search.block), blocks).astype(jnp.int32)
    return _end(k, q, jax.lax.fori_loop(0, visits, one, best))


def _all_memories(search, k, q, keys, size):
    """q [b,h,l,d], keys [b,h,M,d], size [b,h] -> score, index [b,h,k,l]: all memories, block after block.

    As many blocks as the fullest memory has: were each to stop on its own, all would be kept from
    running at once, and the part of a head would be copied before it is searched.
    """
    blocks = -(-keys.shape[2] // search.block)
    keys = jnp.pad(keys, ((0, 0), (0, 0), (0, blocks * search.block - keys.shape[2]), (0, 0)))
    tiles, best = _begin(search, k, q)
    visit = lambda first, block, best: over_groups(partial(_visit, search, first), tiles, size, block, *best)  # noqa: E731
    if blocks == 1:
        return _end(k, q, visit(0, keys, best))

    def one(n, best):
        first = n * search.block
        return visit(first, jax.lax.dynamic_slice_in_dim(keys, first, search.block, axis=2), best)

    visits = jnp.minimum(-(-jnp.max(size) // search.block), blocks).astype(jnp.int32)
    return _end(k, q, jax.lax.fori_loop(0, visits, one, best))


def _begin(search, k, q):
    """Queries [...,l,d] in tiles [...,T,t,d], and nothing found yet: score, index [...,T,K,t]."""
    t = min(q.shape[-2], search.tile or q.shape[-2])
    pad = [(0, 0)] * (q.ndim - 2) + [(0, -q.shape[-2] % t), (0, 0)]
    tiles = jnp.pad(q, pad).reshape(*q.shape[:-2], -1, t, q.shape[-1])
    shape = (*tiles.shape[:-2], ranking.ceiling(k), t)
    return tiles, (jnp.full(shape, EMPTY), jnp.zeros(shape, jnp.int32))


def _visit(search, first, tiles, size, block, *best):
    """Merges what one block of one memory has, keys [n,d] of entries from `first` on, into best [T,K,t]."""
    K, step = best[0].shape[1], _METHODS[search.method]

    def tile(inputs):
        q, best = inputs
        there = first + jnp.arange(search.block, dtype=jnp.int32) < size
        if search.method in ("exact", "buckets"):
            scores = jnp.where(there[:, None], einsum("nd,td->nt", block, q), EMPTY)
        else:  # these sort along the last axis
            scores = jnp.where(there[None], einsum("td,nd->tn", q, block), EMPTY)
        return step(search, K, scores, first, best)

    return jax.lax.map(tile, (tiles, best))


def _end(k, q, best):
    """Tiles [...,T,K,t] -> score, index [...,k,l]."""
    lead, (K, _) = best[0].shape[:-3], best[0].shape[-2:]
    return tuple(jnp.moveaxis(x, -3, -2).reshape(*lead, K, -1)[..., :k, : q.shape[-2]] for x in best)


# ---- exact and buckets: a tournament ----------------------------------------------------------


def _rounds(scores, least):
    """Matches of FAN rows, matches of their winners, and so on until `least` rows are left: [n,t], ..., [least,t].

    Rivals stand a whole round apart, so the winners of the last round are those of the residue
    classes modulo `least`. Maxima only: this is the pass that every score goes through.
    """
    rounds = [scores]
    while rounds[-1].shape[0] > least:
        x = rounds[-1]
        fan = min(FAN, x.shape[0] // least)
        best, *others = x.reshape(fan, -1, x.shape[-1])
        for other in others:
            best = jnp.maximum(best, other)
        rounds.append(best)
    return rounds


def _numbered(x):
    """Scores [n,t] with their rows."""
    return x, jnp.broadcast_to(jnp.arange(x.shape[0], dtype=jnp.int32)[:, None], x.shape)


def _rivals(entries, above, place):
    """Who met in the matches that led `place` [K,t] to a round of `above` rows: FAN (score, row) pairs [K,t]."""
    rows = place[1][None] + jnp.arange(0, entries.shape[0], above, dtype=jnp.int32)[:, None, None]
    flat = rows.reshape(-1, rows.shape[-1])
    scores = jnp.take_along_axis(entries, flat, axis=0, mode="promise_in_bounds").reshape(rows.shape)
    return list(zip(scores, rows, strict=True))


def _match(one, two):
    """Two (score, row) pairs, the better one first."""
    won = one[0] >= two[0]
    return tuple(tuple(jnp.where(w, x, y) for x, y in zip(one, two, strict=True)) for w in (won, ~won))


def _podium(rivals, places):
    """The best few of several (score, row) pairs, in order, and all others in any order."""
    podium, rest = [], []
    for new in rivals:
        for n, old in enumerate(podium):
            podium[n], new = _match(old, new)
        (podium if len(podium) < places else rest).append(new)
    return podium, rest


def _tournament(search, K, scores, first, best):
    """Merges the K largest of scores [n,t] into best [K,t].

    The K largest entries of a round descend from the K largest of the round above it: these won
    their matches, so on the way down only the losers of K matches have to be ranked.
    """
    *rounds, top = _rounds(scores, scores.shape[0] // FAN ** _height(scores.shape[0], K))
    ranked, above = ranking.largest(K, *_numbered(top)), top.shape[0]
    for entries in reversed(rounds):
        (winner,), losers = _podium(_rivals(entries, above, ranked), 1)
        ranked, above = ranking.merge(winner, *_concatenate(losers)), entries.shape[0]
    return ranking.join(best, (ranked[0], ranked[1] + first))


def _height(rows, K):
    """Rounds of a tournament: as many as leave at least 4 K rows, where sorting ends being dear."""
    return max(0, math.ceil(math.log(rows / (4 * K), FAN)))


def _concatenate(pairs):
    return tuple(jnp.concatenate(xs) for xs in zip(*pairs, strict=True))


def _winners(search, K, scores, first, best):
    """Merges the K largest winners of the buckets of scores [n,t] into best [K,t].

    Bucket i mod L of a block is what meets in a tournament down to L rows. The k best winners of all
    are in the K best buckets, and only these are followed down to their entries.
    """
    *rounds, top = _rounds(scores, search.buckets)
    podium, above = [ranking.largest(K, *_numbered(top))], top.shape[0]
    for entries in reversed(rounds):
        rivals = [rival for place in podium for rival in _rivals(entries, above, place)]
        podium, above = _podium(rivals, search.winners)[0], entries.shape[0]
    best = ranking.join(best, (podium[0][0], podium[0][1] + first))
    for score, row in podium[1:]:
        best = ranking.merge(best, score, row + first)
    return best


# ---- sorted and approximate: along rows [t,n] -------------------------------------------------


def _sorted(search, K, scores, first, best):
    """Merges the K largest of scores [t,n] into best [K,t]."""
    return _join(best, jax.lax.top_k(scores, min(K, scores.shape[1])), first)


def _approximate(search, K, scores, first, best):
    """The same with `approx_max_k`, but the best entry is not left to it.

    It is looked for once more and put in where it is missing: an approximate search may lose entries,
    also through faults of a compiler, but not this one.
    """
    top, at = jax.lax.approx_max_k(scores, min(K, scores.shape[1]), recall_target=search.recall)
    peak, place = scores.max(-1), scores.argmax(-1).astype(at.dtype)
    lost = top.max(-1) < peak
    top = top.at[:, -1].set(jnp.where(lost, peak, top[:, -1]))
    at = at.at[:, -1].set(jnp.where(lost, place, at[:, -1]))
    return _join(best, (top, at), first)


def _join(best, new, first):
    """Merges new winners [t,k], numbered from `first` on, into best [K,t], both in any order."""
    score = jnp.concatenate([best[0].T, new[0]], axis=1)
    index = jnp.concatenate([best[1].T, new[1] + first], axis=1)
    top, at = jax.lax.top_k(score, best[0].shape[0])
    return top.T, jnp.take_along_axis(index, at, axis=1).T


_METHODS = {"exact": _tournament, "sorted": _sorted, "buckets": _winners, "approximate": _approximate}
