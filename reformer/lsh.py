"""LSH attention: each position attends to its neighbours in several hashed orders.

Reformer, section 2 ("LSH attention", "multi-round LSH attention") and Appendix A. In one
round the positions are sorted by (bucket, position) and cut into chunks of c; a position
looks at its own chunk, `before` chunks before it and `after` chunks after it. Several
rounds are joined exactly: together they are ONE softmax over everything seen in any round,

    o_i = sum_j exp(s_ij) v_j / N_ij  /  sum_j exp(s_ij) / N_ij

with j running over all sightings and N_ij the number of sightings of j by i (Eq. 16 writes
it as - ln N_ij in the exponent). Without the correction N_ij is 1: what is seen twice then
counts twice, as in the authors' later code.

The backward pass keeps only the order, the output and the normaliser. As all rounds share
one normaliser, each is recomputed alone, and one round's arrays exist at a time. Vectors
are moved by gathers in both directions: the gradient of "sort" is "unsort".

The core is written for one sequence of one head, so that it reads like the paper.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import checks, full, hashing, windows
from reformer.full import FLOOR, MASKED
from reformer.products import einsum
from reformer.steps import dropout_factors, make_steps, over_groups, over_pairs
from reformer.windows import take


@dataclass(frozen=True)
class LSH:
    """Setting of LSH attention; see `lsh_attention` for the fields not told here.

    rounds: hashings; may differ between training and evaluation on the same parameters.
    buckets: per round: None for `hashing.bucket_factors(length, chunk)`, an even number, or
        a tuple of even factors of it.

    The defaults follow the text of the paper where it and the authors' code disagree on the
    result (duplicates are corrected, Eq. 16; no wrap), and the code where that is what was
    trained: a query sees its whole window, as in the authors' copy task, not only its
    bucket (Eq. 4), and logits are q.k / |k|.

    An input that fits into one chunk gets exact attention, equal to `Full`: there is nothing
    to save, and buckets are not consulted, unless they are given: it may be a short beginning.
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
    block: int | None = None

    shared = True  # hashing needs queries that are also the keys

    def __post_init__(self):
        checks.positive("rounds", self.rounds)
        checks.positive("chunk", self.chunk)
        checks.positive("before", self.before, least=0)
        checks.positive("after", self.after, least=0)
        checks.choice("scale", self.scale, full.SCALES)
        checks.rate("dropout", self.dropout)
        if self.block is not None:
            checks.positive("block", self.block)
        if isinstance(self.buckets, list):  # so gin files write it; settings must be hashable
            object.__setattr__(self, "buckets", tuple(self.buckets))
        if self.buckets is not None:
            hashing.check_factors(self.factors(1))

    def factors(self, length):
        """Bucket factors for sequences of `length`."""
        if self.buckets is None:
            return hashing.bucket_factors(length, self.chunk)
        return self.buckets if isinstance(self.buckets, tuple) else (self.buckets,)

    def draw(self, key, heads, length, width):
        """Random directions float32 [h,r,d,x] for `decide`; None where one chunk covers the input."""
        if length <= self.chunk:
            return None
        return hashing.rotations(key, heads, self.rounds, width, self.factors(length))

    def decide(self, q, directions):
        """What chance decides, to be kept where the forward pass is repeated.

        q [b,h,l,d], directions of the same heads -> bucket ids int32 [b,h,r,l], or None. Pass it
        to `attend` as `decision`.
        """
        if directions is None:
            return None
        return hashing.hash_vectors(q, directions, self.factors(q.shape[2]))

    def attend(self, q, k, v, key=None, *, causal=True, keep=None, train=False, decision=None):
        """q [b,h,l,d], v [b,h,l,e] -> [b,h,l,e]; k must be None. key None is a fixed key."""
        checks.keys_given(k, self.shared)
        rest = {
            "causal": causal,
            "keep": keep,
            "scale": self.scale,
            "dropout": self.dropout if train else 0.0,
        }
        checks.dropout_key(rest["dropout"], key)
        key = jax.random.key(0) if key is None else key
        if q.shape[2] <= self.chunk and decision is None:
            return full.shared_attention(q, v, key=jax.random.fold_in(key, 1), **rest)
        if decision is None:
            _, h, length, d = q.shape
            decision = self.decide(q, self.draw(jax.random.fold_in(key, 0), h, length, d))
        return lsh_attention(
            q,
            v,
            decision,
            math.prod(self.factors(q.shape[2])),
            chunk=self.chunk,
            before=self.before,
            after=self.after,
            within_bucket=self.within_bucket,
            correct_duplicates=self.correct_duplicates,
            wrap=self.wrap,
            key=jax.random.fold_in(key, 1),
            block=self.block,
            **rest,
        )


def lsh_attention(
    q,
    v,
    buckets,
    count,
    *,
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
    block=None,
):
    """Attention along given bucket ids: q [b,h,l,d], v [b,h,l,e] -> [b,h,l,e].

    buckets: int32 [b,h,r,l] with values in [0, count), from `hashing.hash_vectors`. They
        decide who sees whom and carry no gradient.
    chunk, before, after: the window, in chunks of the sorted order. `after` is useful in
        causal attention too: the order is by bucket, not by time.
    keep: bool [b,l], True = keep. Padding sorts behind all real positions and is seen by
        nobody; what comes out at padding is finite and means nothing.
    within_bucket: see only positions of one's own bucket (Eq. 4), not all of the window.
    correct_duplicates: see the module's text.
    wrap: windows run on from one round into the next, and from the last into the first, as
        in the authors' code. Otherwise they end with their round. Windows that stay within
        a bucket have nothing to gain from it, and are not changed.
    scale: see `full.shared_keys`.
    dropout: share of the weights dropped, after the softmax and without renormalising; one
        mask for the batch and the heads, drawn from `key`.
    block: positions computed at the same time, of one or of several sequences and heads;
        memory grows with it, and the result does not depend on it. None: see `steps`.

    A position sees itself only if it sees nothing else in any round: it then copies its own
    value. Who is visible depends on later positions through the sorting; later *values*
    never reach an earlier output of causal attention.
    """
    b, h, length, d = q.shape
    checks.attention_shapes(q, q, v, keep)
    checks.dropout_key(dropout, key)
    if buckets.ndim != 4 or (*buckets.shape[:2], buckets.shape[3]) != (b, h, length):
        raise ValueError(f"buckets must be [b,h,r,l] beside q {q.shape}; got {buckets.shape}")
    wrap = wrap and not within_bucket
    # With wrap, a chunk of nothing but padding would stand in the ring.
    steps = make_steps(b, h, length, chunk, block, whole_chunks=wrap)
    window = windows.Window(before, after, steps)
    rule = windows.Rule(window, causal, within_bucket, correct_duplicates, wrap, dropout)
    reach = jax.lax.rsqrt(jnp.sum(jnp.square(q.astype(jnp.float32)), -1) + d * full.EPSILON)
    if scale == "paper":
        reach = reach * d**-0.5

    extra = steps.length - length
    if extra or keep is not None:
        keep = jnp.ones((b, length), bool) if keep is None else keep
        keep = jnp.pad(keep, ((0, 0), (0, extra)))
        keep = jnp.broadcast_to(keep[:, None], (b, h, length + extra))
        q, v = (jnp.pad(x, ((0, 0), (0, 0), (0, extra), (0, 0))) for x in (q, v))
        reach = jnp.pad(reach, ((0, 0), (0, 0), (0, extra)), constant_values=1.0)
        buckets = jnp.pad(buckets, ((0, 0), (0, 0), (0, 0), (0, extra)))
    plan = windows.make_plan(rule, jax.lax.stop_gradient(buckets), keep, count)
    return _attend(rule, q, reach, v, plan, key)[:, :, :length]


# ---- one sequence of one head --------------------------------------------------------------


class _Group(NamedTuple):
    """Some neighbouring chunks of one sorted round."""

    rows: jax.Array  # [E,...] vectors in the visible slots
    mine: jax.Array  # [n,c] positions of the queries
    reach: jax.Array  # [n,w] what normalises the keys
    legal: jax.Array  # [n,c,w] may the query see the key?
    sightings: jax.Array | None  # [n,c,w] how often it does in all rounds, if that is corrected
    survivors: jax.Array | None  # [n,c,w] dropout factors, if there is dropout


def _gather(rule, plan, r, start, key, vectors, reach):
    """The group of round r that begins with slot `start`: vectors [L,...], reach [L] -> _Group."""
    window = rule.window
    slots = windows.visible(rule, plan, r, start)
    at = windows.occupants(plan, slots)
    legal = windows.legal_pairs(rule, plan, r, slots, at)
    sightings = survivors = None
    if rule.correct_duplicates and (plan.order.shape[0] > 1 or rule.wrap):
        sightings = jnp.maximum(windows.count_sightings(rule, plan, at), 1)
    if rule.dropout:
        key = jax.random.fold_in(key, r)
        survivors = dropout_factors(window.steps, rule.dropout, key, start, window.width)
    reach = windows.spread(window, take(reach, at))
    mine = windows.queries(window, at)
    return _Group(take(vectors, at), mine, reach, legal, sightings, survivors)


def _weights(group, x, y, reference):
    """exp(logit - reference) / sightings, float32 [n,c,w]; x [n,c,d], y [n,w,d]. Also the
    reference [n,c], which is the largest logit if none is given."""
    # Scaling the columns of q q^T is cheaper than making, sorting and chunking k.
    logits = einsum("nid,njd->nij", x, y) * group.reach[:, None, :]
    logits = jnp.where(group.legal, logits, MASKED)
    if reference is None:
        reference = jnp.maximum(logits.max(-1), FLOOR)
    p = jnp.exp(logits - reference[..., None])
    return (p if group.sightings is None else p / group.sightings), reference


def _drop(group, x):
    """Dropout of x [n,c,w]."""
    return x if group.survivors is None else x * group.survivors


def _forward(rule, key, q, reach, v, plan):
    """q [L,d], reach [L], v [L,e] -> output [L,e] and normaliser [L], float32 both."""
    (rounds, L), d, window = plan.order.shape, q.shape[-1], rule.window
    vectors = jnp.concatenate([q, v], -1)  # one gather of long rows is cheaper than two

    def one_group(r, start):
        group = _gather(rule, plan, r, start, key, vectors, reach)
        x, y = windows.queries(window, group.rows[:, :d]), windows.spread(window, group.rows[:, :d])
        p, top = _weights(group, x, y, None)
        total = p.sum(-1)
        total = jnp.where(total > 0, total, 1.0)
        p, u = _drop(group, p).astype(v.dtype), windows.spread(window, group.rows[:, d:])
        o = einsum("nij,nje->nie", p, u) / total[..., None]
        return o.reshape(window.steps.group, -1), (top + jnp.log(total)).reshape(window.steps.group)

    def one_round(carry, r):
        o, lse = carry
        parts = over_groups(window.steps, partial(one_group, r))
        slot = take(plan.slot, r) - r * L
        part, here = (take(x.reshape(L, *x.shape[2:]), slot) for x in parts)
        both = jnp.logaddexp(lse, here)
        o = o * jnp.exp(lse - both)[:, None] + part * jnp.exp(here - both)[:, None]
        return (o, both), None

    start = (jnp.zeros(v.shape, jnp.float32), jnp.full((L,), MASKED))
    (o, lse), _ = jax.lax.scan(one_round, start, jnp.arange(rounds))
    return jnp.where(_alone(lse, plan.keep), v.astype(o.dtype), o).astype(v.dtype), lse


def _alone(lse, keep):
    """Rows [L,1] that may see nothing but themselves."""
    alone = lse < FLOOR / 2
    return (alone if keep is None else alone & keep)[:, None]


def _backward(rule, key, q, reach, v, plan, o, lse, do):
    """Gradients of q [L,d], reach [L] and v [L,e]."""
    (rounds, L), d, e = plan.order.shape, q.shape[-1], v.shape[-1]
    window, margin = rule.window, rule.window.margin
    alone = _alone(lse, plan.keep)  # a lonely row copied its own value
    dv = jnp.where(alone, do, 0.0).astype(jnp.float32)
    do = jnp.where(alone, 0.0, do).astype(v.dtype)
    delta = jnp.sum(do.astype(jnp.float32) * o.astype(jnp.float32), -1)
    vectors = jnp.concatenate([q, v, do], -1)

    def one_group(r, start):
        group = _gather(rule, plan, r, start, key, vectors, reach)
        x, y = windows.queries(window, group.rows[:, :d]), windows.spread(window, group.rows[:, :d])
        u = windows.spread(window, group.rows[:, d : d + e])
        g = windows.queries(window, group.rows[:, d + e :])
        p, _ = _weights(group, x, y, take(lse, group.mine))
        dp = _drop(group, einsum("nie,nje->nij", g, u))
        ds = p * (dp - take(delta, group.mine)[..., None]) * group.reach[:, None, :]
        ds, p = ds.astype(q.dtype), _drop(group, p).astype(v.dtype)
        dq = einsum("nij,njd->nid", ds, y).reshape(window.steps.group, d)
        dk = windows.fold(einsum("nij,nid->njd", ds, x), window.steps.chunk)
        dv = windows.fold(einsum("nij,nie->nje", p, g), window.steps.chunk)
        dreach = jnp.sum(dk * group.rows[:, :d].astype(jnp.float32), -1)  # reach times too large
        dq = dk + jnp.pad(dq, ((margin, dk.shape[0] - window.steps.group - margin), (0, 0)))
        return dq, dreach, dv

    def one_round(totals, r):
        parts = [windows.fold(x, window.steps.group) for x in over_groups(window.steps, partial(one_group, r))]
        slot = take(plan.slot, r) - r * L + margin
        sums = [t + take(x, slot) for t, x in zip(totals, parts, strict=True)]
        if rule.wrap:  # what was seen across the ends of the round belongs to other slots
            ends = jnp.concatenate([jnp.arange(margin), jnp.arange(L + margin, parts[0].shape[0])])
            at = windows.occupants(plan, ends + r * L - margin)
            sums = [t.at[at].add(take(x, ends)) for t, x in zip(sums, parts, strict=True)]
        return tuple(sums), None

    start = (jnp.zeros(q.shape, jnp.float32), jnp.zeros((L,), jnp.float32), dv)
    (dq, dreach, dv), _ = jax.lax.scan(one_round, start, jnp.arange(rounds))
    return dq.astype(q.dtype), dreach / reach, dv.astype(v.dtype)


# ---- all sequences and heads ---------------------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(rule, q, reach, v, plan, key):
    return _attend_forward(rule, q, reach, v, plan, key)[0]


def _attend_forward(rule, q, reach, v, plan, key):
    o, lse = over_pairs(rule.window.steps, partial(_forward, rule, key), q, reach, v, plan)
    return o, (q, reach, v, plan, key, o, lse)


def _attend_backward(rule, saved, do):
    q, reach, v, plan, key, o, lse = saved
    grads = over_pairs(rule.window.steps, partial(_backward, rule, key), q, reach, v, plan, o, lse, do)
    return (*grads, None, None)


_attend.defvjp(_attend_forward, _attend_backward)
