"""LSH attention: each position attends to its neighbours in several hashed orders.

Reformer, section 2 ("LSH attention", "multi-round LSH attention") and Appendix A. In one
round the positions are sorted by (bucket, position) and cut into chunks of c; a position
looks at its own chunk, `before` chunks before it and `after` chunks after it. Rounds are
joined exactly: together they are ONE softmax over everything that was seen in any round,

    o_i = sum_j exp(q_i.k_j) v_j / N_ij  /  sum_j exp(q_i.k_j) / N_ij,

with j running over all sightings and N_ij the number of sightings of j by i (Eq. 16 writes
it as - ln N_ij in the exponent). Without the correction N_ij is 1 and what is seen twice
counts twice, as in the authors' later code.

Backward pass: only the order, the output and the normaliser are kept; every round is
recomputed, and since all rounds share one normaliser, no round needs another's results.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import checks, full, hashing
from reformer.full import FLOOR, MASKED, shared_keys
from reformer.products import einsum


@dataclass(frozen=True)
class LSH:
    """Setting of LSH attention; see `lsh_attention` for what the fields mean.

    buckets: None for `hashing.bucket_factors(length, chunk)`, an even number, or a tuple
        of even factors of it.
    """

    rounds: int = 4
    chunk: int = 64
    buckets: int | tuple[int, ...] | None = None
    before: int = 1
    after: int = 0
    within_bucket: bool = False
    correct_duplicates: bool = True
    wrap: bool = False
    scale: str = "official"
    dropout: float = 0.0

    def __post_init__(self):
        checks.positive("rounds", self.rounds)
        checks.positive("chunk", self.chunk)
        checks.positive("before", self.before, least=0)
        checks.positive("after", self.after, least=0)
        checks.choice("scale", self.scale, full.SCALES)
        checks.rate("dropout", self.dropout)

    @property
    def shared(self):
        """Hashing needs equal queries and keys."""
        return True

    def factors(self, length):
        """Bucket factors used for sequences of `length`."""
        if self.buckets is None:
            return hashing.bucket_factors(length, self.chunk)
        return (self.buckets,) if isinstance(self.buckets, int) else tuple(self.buckets)

    def decide(self, q, key):
        """Bucket ids int32 [b,h,r,l] of q [b,h,l,d]; rotations drawn from `key`."""
        b, h, l, d = q.shape
        factors = self.factors(l)
        directions = hashing.rotations(key, h, self.rounds, d, factors)
        return hashing.hash_vectors(q, directions, factors)

    def attend(self, q, k, v, key=None, *, causal=True, keep=None, train=False, decision=None):
        """q, v [b,h,l,d] (k None) -> [b,h,l,d]."""
        checks.keys_given(k, True)
        key = jax.random.key(0) if key is None else key
        if decision is None:
            decision = self.decide(q, jax.random.fold_in(key, 0))
        return lsh_attention(
            q,
            v,
            decision,
            chunk=self.chunk,
            before=self.before,
            after=self.after,
            causal=causal,
            keep=keep,
            within_bucket=self.within_bucket,
            correct_duplicates=self.correct_duplicates,
            wrap=self.wrap,
            scale=self.scale,
            dropout=self.dropout if train else 0.0,
            key=jax.random.fold_in(key, 1),
        )


class _Rule(NamedTuple):
    """What is fixed when the computation is compiled."""

    chunk: int
    before: int
    after: int
    causal: bool
    within_bucket: bool
    correct_duplicates: bool
    wrap: bool
    scale: str
    dropout: float


class _Plan(NamedTuple):
    """Who stands where in each round; integers only. L = n c is the padded length.

    Slots count through all rounds: round r owns the slots r L .. (r+1) L - 1.
    """

    order: jax.Array  # [b,h,r,L] position in each slot
    slot: jax.Array  # [b,h,r,L] slot of each position
    first: jax.Array  # [b,h,r,L] first slot that each position sees
    last: jax.Array  # [b,h,r,L] the slot after the last one it sees
    keep: jax.Array | None  # [b,L] False for padding


def lsh_attention(
    q,
    v,
    buckets,
    *,
    count=None,
    chunk=64,
    before=1,
    after=0,
    causal=True,
    keep=None,
    within_bucket=False,
    correct_duplicates=True,
    wrap=False,
    scale="official",
    dropout=0.0,
    key=None,
):
    """q, v [b,h,l,d] and bucket ids int32 [b,h,r,l] -> [b,h,l,d]."""
    l = q.shape[2]
    rule = _Rule(
        chunk, before, after, causal, within_bucket, correct_duplicates, wrap, scale, dropout
    )
    extra = -l % chunk
    if extra or keep is not None:
        keep = jnp.ones((q.shape[0], l), bool) if keep is None else keep
        keep = jnp.pad(keep, ((0, 0), (0, extra)))
        q, v = (jnp.pad(x, ((0, 0), (0, 0), (0, extra), (0, 0))) for x in (q, v))
        buckets = jnp.pad(buckets, ((0, 0), (0, 0), (0, 0), (0, extra)))
    plan = _plan(rule, jax.lax.stop_gradient(buckets), keep, count or 1 << 20)
    return _attend(rule, q, v, plan, key)[:, :, :l]


def _plan(rule, buckets, keep, count):
    """Sorts the rounds and writes down what everyone sees."""
    c, L, r = rule.chunk, buckets.shape[-1], buckets.shape[-2]
    if keep is not None:  # padding gets a bucket of its own behind all others
        buckets = jnp.where(keep[:, None, None, :], buckets, count)
        count += 1
    order, slot = hashing.sort_by_bucket(buckets, count)
    begin = jnp.arange(r, dtype=jnp.int32)[None, None, :, None] * L
    home = slot // c * c
    first, last = home - rule.before * c, home + (1 + rule.after) * c
    if rule.within_bucket or not rule.wrap:
        first, last = jnp.maximum(first, 0), jnp.minimum(last, L)
    if rule.within_bucket:
        low, high = _bucket_borders(_take(buckets, order))
        first = jnp.maximum(first, _take(low, slot))
        last = jnp.minimum(last, _take(high, slot))
    return _Plan(order, slot + begin, first + begin, last + begin, keep)


def _bucket_borders(ids):
    """Sorted ids [...,L] -> first slot of each slot's bucket, and the slot after its last."""
    L = ids.shape[-1]
    at = jnp.broadcast_to(jnp.arange(L, dtype=jnp.int32), ids.shape)
    fresh = jnp.concatenate([jnp.ones_like(ids[..., :1], bool), ids[..., 1:] != ids[..., :-1]], -1)
    ends = jnp.concatenate([fresh[..., 1:], jnp.ones_like(fresh[..., :1])], -1)
    axis = ids.ndim - 1
    low = jax.lax.cummax(jnp.where(fresh, at, 0), axis=axis)
    high = jax.lax.cummin(jnp.where(ends, at + 1, L), axis=axis, reverse=True)
    return low, high


def _take(x, index):
    """x [b,h,...,L] or rows [b,h,L,d] picked along L by index [b,h,...,E]."""
    take = lambda x, i: x.at[i].get(mode="promise_in_bounds")
    for _ in range(index.ndim - 1):
        take = jax.vmap(take)
    return take(x, index)


class _Tile(NamedTuple):
    """One round, cut into chunks: n chunks of c queries that look at w = (before+1+after) c keys."""

    at: jax.Array  # [b,h,E] position of each visible slot, E = (before + n + after) c
    legal: jax.Array  # [b,h,n,c,w]
    sightings: jax.Array | None  # [b,h,n,c,w] how often the query sees the key in all rounds


def _tile(rule, plan, r):
    """Everything about round r that does not depend on the vectors."""
    c, a, z = rule.chunk, rule.before, rule.after
    b, h, R, L = plan.order.shape
    wraps = rule.wrap and not rule.within_bucket
    ring = plan.order.reshape(b, h, R * L)
    visible = r * L - a * c + jnp.arange(L + (a + z) * c, dtype=jnp.int32)
    at = ring[:, :, visible % (R * L)]
    mine = at[:, :, a * c : a * c + L]

    # A key that nobody may see gets a position after all others.
    place = at
    if plan.keep is not None:
        real = _take(jnp.broadcast_to(plan.keep[:, None], (b, h, L)), at)
        place = jnp.where(real, place, L)
    if not wraps:
        place = jnp.where((visible >= r * L) & (visible < (r + 1) * L), place, L)
    i = mine.reshape(b, h, -1, c)[..., :, None]
    j = _windows(rule, place)[..., None, :]
    legal = j < i if rule.causal else (j != i) & (j < L)
    rows = lambda x: _take(x, mine).reshape(b, h, -1, c)[..., :, None]
    columns = lambda x: _windows(rule, _take(x, at))[..., None, :]
    if rule.within_bucket:
        s = _windows(rule, jnp.broadcast_to(visible, at.shape))[..., None, :]
        get = lambda x: rows(jax.lax.dynamic_index_in_dim(x, r, 2, keepdims=False))
        legal &= (s >= get(plan.first)) & (s < get(plan.last))
    sightings = None
    if rule.correct_duplicates and not (R == 1 and not wraps):
        sightings = 0
        slots = [columns(plan.slot[:, :, s]) for s in range(R)]
        for s in range(R):
            first = rows(plan.first[:, :, s])
            span = rows(plan.last[:, :, s]) - first
            if not wraps:
                sightings += (
                    (slots[s] - first).astype(jnp.uint32) < span.astype(jnp.uint32)
                ).astype(jnp.float32)
                continue
            n = L // c
            near = {(s + t) % R for t in range(-a // n, (n - 1 + z) // n + 1)}
            for t in near:
                far = (slots[t] - first) % (R * L)
                for turn in range(-(-(a + 1 + z) * c // (R * L))):
                    sightings += (far + turn * R * L < span).astype(jnp.float32)
    return at, mine, legal, sightings


def _windows(rule, x):
    """[b,h,E,...] -> [b,h,n,w,...]: each chunk beside its neighbours."""
    c, w = rule.chunk, rule.before + 1 + rule.after
    b, h, E = x.shape[:3]
    x = x.reshape(b, h, E // c, c, *x.shape[3:])
    n = E // c - (w - 1)
    return jnp.concatenate([x[:, :, o : o + n] for o in range(w)], axis=3)


def _fold(rule, x):
    """Transpose of `_windows`: [b,h,n,w,d] -> [b,h,E,d], overlaps added."""
    c, w = rule.chunk, rule.before + 1 + rule.after
    b, h, n, _, d = x.shape
    total = 0
    for o in range(w):
        total += jnp.pad(
            x[:, :, :, o * c : (o + 1) * c], ((0, 0), (0, 0), (o, w - 1 - o), (0, 0), (0, 0))
        )
    return total.reshape(b, h, -1, d)


def _survivors(rule, key, r, shape):
    drawn = jax.random.bernoulli(jax.random.fold_in(key, r), 1 - rule.dropout, (1, 1, *shape[2:]))
    return drawn / (1 - rule.dropout)


def _forward(rule, q, v, plan, key):
    b, h, R, L = plan.order.shape
    c, a = rule.chunk, rule.before

    def one_round(carry, r):
        o, lse = carry
        at, mine, legal, sightings = _tile(rule, plan, r)
        x = _take(q, at)
        y = _windows(rule, _take(v, at))
        k = _windows(rule, shared_keys(x, rule.scale))
        x = x[:, :, a * c : a * c + L].reshape(b, h, -1, c, x.shape[-1])
        logits = einsum("bhnid,bhnjd->bhnij", x, k)
        logits = jnp.where(legal, logits, MASKED)
        top = jnp.maximum(logits.max(-1), FLOOR)
        p = jnp.exp(logits - top[..., None])
        if sightings is not None:
            p = p / jnp.maximum(sightings, 1.0)
        total = p.sum(-1)
        if rule.dropout:
            p = p * _survivors(rule, key, r, p.shape)
        part = einsum("bhnij,bhnje->bhnie", p.astype(y.dtype), y)
        total = jnp.where(total > 0, total, 1.0)
        part = (part / total[..., None]).reshape(b, h, L, -1)
        here = (top + jnp.log(total)).reshape(b, h, L)
        slot = jax.lax.dynamic_index_in_dim(plan.slot, r, 2, keepdims=False) - r * L
        part, here = _take(part, slot), _take(here, slot)
        both = jnp.logaddexp(lse, here)
        o = o * jnp.exp(lse - both)[..., None] + part * jnp.exp(here - both)[..., None]
        return (o, both), None

    start = (jnp.zeros(v.shape, jnp.float32), jnp.full((b, h, L), 2 * FLOOR))
    (o, lse), _ = jax.lax.scan(one_round, start, jnp.arange(R))
    o = jnp.where(_alone(lse, plan.keep), v.astype(o.dtype), o)
    return o.astype(v.dtype), lse


def _alone(lse, keep):
    alone = lse <= FLOOR
    if keep is not None:
        alone &= keep[:, None, :]
    return alone[..., None]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(rule, q, v, plan, key):
    return _forward(rule, q, v, plan, key)[0]


def _attend_forward(rule, q, v, plan, key):
    o, lse = _forward(rule, q, v, plan, key)
    return o, (q, v, plan, key, o, lse)


def _attend_backward(rule, saved, do):
    q, v, plan, key, o, lse = saved
    b, h, R, L = plan.order.shape
    c, a = rule.chunk, rule.before
    f32 = jnp.float32
    alone = _alone(lse, plan.keep)
    dv = jnp.where(alone, do.astype(f32), 0.0)
    do = jnp.where(alone, jnp.zeros((), do.dtype), do)
    delta = einsum("bhle,bhle->bhl", do, o)
    cut = lambda x: x.reshape(b, h, -1, c, *x.shape[3:])

    def one_round(carry, r):
        dq, dv = carry
        at, mine, legal, sightings = _tile(rule, plan, r)
        x = _take(q, at)
        y = _windows(rule, _take(v, at))
        g = cut(_take(do, mine))
        keys, back = jax.vjp(lambda x: shared_keys(x, rule.scale), x)
        k = _windows(rule, keys)
        x = cut(x[:, :, a * c : a * c + L])
        logits = einsum("bhnid,bhnjd->bhnij", x, k)
        p = jnp.exp(jnp.where(legal, logits, MASKED) - cut(_take(lse, mine))[..., None])
        if sightings is not None:
            p = p / jnp.maximum(sightings, 1.0)
        dp = einsum("bhnie,bhnje->bhnij", g, y)
        kept = p
        if rule.dropout:
            survivors = _survivors(rule, key, r, p.shape)
            kept, dp = p * survivors, dp * survivors
        ds = (p * (dp - cut(_take(delta, mine))[..., None])).astype(q.dtype)
        dy = _fold(rule, einsum("bhnij,bhnie->bhnje", kept.astype(g.dtype), g))
        dk = _fold(rule, einsum("bhnij,bhnid->bhnjd", ds, x))
        dx = einsum("bhnij,bhnjd->bhnid", ds, k)
        dx = jnp.pad(dx.reshape(b, h, L, -1), ((0, 0), (0, 0), (a * c, rule.after * c), (0, 0)))
        dx = dx + back(dk.astype(keys.dtype))[0].astype(f32)
        slot = jax.lax.dynamic_index_in_dim(plan.slot, r, 2, keepdims=False) - r * L
        both = []
        for total, part in ((dq, dx), (dv, dy)):
            total = total + _take(part, slot + a * c)
            if rule.wrap and not rule.within_bucket:
                edge = jnp.concatenate([jnp.arange(a * c), jnp.arange(a * c + L, at.shape[-1])])
                total = jax.vmap(jax.vmap(lambda t, i, p: t.at[i].add(p)))(
                    total, at[:, :, edge], part[:, :, edge]
                )
            both.append(total)
        return tuple(both), None

    (dq, dv), _ = jax.lax.scan(one_round, (jnp.zeros(q.shape, f32), dv), jnp.arange(R))
    return dq.astype(q.dtype), dv.astype(v.dtype), None, None


_attend.defvjp(_attend_forward, _attend_backward)
