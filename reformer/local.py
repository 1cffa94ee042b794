"""Local attention: a position looks at its own chunk of the sequence and the chunks beside it.

Not in the paper; the authors' enwik8 setting alternates it with LSH attention. The window
is that of `lsh.py` without the sorting. Memory is linear in the length: logits are recomputed in
the backward pass.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import checks, windows
from reformer.full import FLOOR, MASKED, shared_keys
from reformer.products import einsum
from reformer.steps import dropout_factors, make_steps, over_groups, over_pairs
from reformer.windows import Window


@dataclass(frozen=True)
class Local:
    """Setting of local attention; see `local_attention` for what the fields mean.

    shared: queries serve as keys, as in LSH attention. The authors' local layers have
        separate keys.
    """

    chunk: int = 128
    before: int = 1
    after: int = 0
    shared: bool = False
    scale: str = "official"
    dropout: float = 0.0

    def __post_init__(self):
        checks.positive("chunk", self.chunk)
        checks.positive("before", self.before, least=0)
        checks.positive("after", self.after, least=0)
        checks.choice("scale", self.scale, ("official", "paper"))
        checks.rate("dropout", self.dropout)

    def draw(self, key, heads, length, width):
        """Nothing is drawn here; see `LSH.draw`."""
        return None

    def decide(self, q, directions):
        """Nothing is decided at random here; see `LSH.decide`."""
        return None

    def attend(self, q, k, v, key=None, *, causal=True, keep=None, train=False, decision=None):
        """q, v [b,h,l,d] and k alike (None if shared) -> [b,h,l,d]."""
        checks.keys_given(k, self.shared)
        if self.shared:
            k = shared_keys(q, self.scale)
        else:
            q = q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
        return local_attention(
            q,
            k,
            v,
            chunk=self.chunk,
            before=self.before,
            after=self.after,
            causal=causal,
            shared=self.shared,
            keep=keep,
            dropout=self.dropout if train else 0.0,
            key=key,
        )


def local_attention(
    q,
    k,
    v,
    *,
    chunk=128,
    before=1,
    after=0,
    causal=True,
    shared=False,
    keep=None,
    dropout=0.0,
    key=None,
    block=None,
):
    """q, k [b,h,l,d], v [b,h,l,e] -> [b,h,l,e]; the logits are q.k, any scale is the caller's.

    chunk, before, after: a query sees its own chunk, `before` chunks before it and `after`
        after it (causal attention sees nothing after itself, whatever `after` is). The
        sequence does not wrap around; its last chunk may be short.
    shared: a position sees itself only when it may see nothing else.
    keep: bool [b,l], True = keep. Rows that see nothing are zero, or copy their own value
        if shared.
    dropout: share of the weights dropped; one mask per chunk for the batch and the heads.
    block: positions computed at the same time; the result does not depend on it. See `steps`.
    """
    checks.attention_shapes(q, k, v, keep)
    checks.dropout_key(dropout, key)
    if q.shape != k.shape:
        raise ValueError(f"local attention has as many keys as queries; got {q.shape}, {k.shape}")
    b, h, length, _ = q.shape
    steps = make_steps(b, h, length, chunk, block)
    window = Window(before, 0 if causal else after, steps)
    keep = jnp.ones((b, length), bool) if keep is None else keep
    keep = jnp.pad(keep, ((0, 0), (0, steps.length - length)))
    keep = jnp.broadcast_to(keep[:, None], (b, h, steps.length))
    q, k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, steps.length - length), (0, 0))) for x in (q, k, v))
    return _attend(_Rule(window, causal, shared, dropout), q, k, v, keep, key)[:, :, :length]


class _Rule(NamedTuple):
    """What is fixed when the computation is compiled."""

    window: Window
    causal: bool
    shared: bool
    dropout: float


# ---- one sequence of one head --------------------------------------------------------------


def _legal(rule, keep, start):
    """May a query of the group at `start` see a position of its window? bool [n,c,w]."""
    window, L = rule.window, keep.shape[0]
    at = start - window.margin + jnp.arange(window.visible, dtype=jnp.int32)
    inside = (at >= 0) & (at < L)
    # What nobody may see takes a place behind all others.
    place = jnp.where(inside & keep[jnp.clip(at, 0, L - 1)], at, L)
    i, j = windows.queries(window, at)[:, :, None], windows.spread(window, place)[:, None, :]
    if rule.causal:
        return j < i if rule.shared else j <= i
    return (j < L) & (j != i) if rule.shared else jnp.broadcast_to(j < L, (*i.shape[:2], j.shape[-1]))


def _group(rule, key, arrays, keep, start):
    """Cuts one group out of q [L,d] and, with margins, k and v -> queries [n,c,d], keys [n,w,d],
    values [n,w,e], masked logits [n,c,w], dropout factors [n,c,w] or 1."""
    window, (q, k, v) = rule.window, arrays
    x = jax.lax.dynamic_slice_in_dim(q, start, window.steps.group)
    x = x.reshape(-1, window.steps.chunk, x.shape[-1])
    y, u = (windows.spread(window, jax.lax.dynamic_slice_in_dim(z, start, window.visible)) for z in (k, v))
    logits = jnp.where(_legal(rule, keep, start), einsum("nid,njd->nij", x, y), MASKED)
    drop = 1.0
    if rule.dropout:
        drop = dropout_factors(window.steps, rule.dropout, key, start, window.width)
    return x, y, u, logits, drop


def _with_margins(window, x):
    """[L,d] -> [margin + L + margin after,d], zeros at the ends."""
    return jnp.pad(x, ((window.margin, window.width - window.margin - window.steps.chunk), (0, 0)))


def _forward(rule, key, q, k, v, keep):
    """q, k [L,d], v [L,e], keep [L] -> output [L,e] and normaliser [L], float32."""
    window, L = rule.window, q.shape[0]
    arrays = (q, _with_margins(window, k), _with_margins(window, v))

    def one_group(start):
        _, _, u, logits, drop = _group(rule, key, arrays, keep, start)
        top = jnp.maximum(logits.max(-1), FLOOR)
        p = jnp.exp(logits - top[..., None])
        total = p.sum(-1)
        total = jnp.where(total > 0, total, 1.0)
        o = einsum("nij,nje->nie", (p * drop).astype(v.dtype), u) / total[..., None]
        return o, top + jnp.log(total)

    o, lse = over_groups(window.steps, one_group)
    o, lse = o.reshape(L, -1), lse.reshape(L)
    if rule.shared:
        o = jnp.where(_alone(lse, keep), v.astype(o.dtype), o)
    return o.astype(v.dtype), lse


def _alone(lse, keep):
    """Rows [L,1] that may see nothing but themselves."""
    return ((lse < FLOOR / 2) & keep)[:, None]


def _backward(rule, key, q, k, v, keep, o, lse, do):
    """Gradients of q, k [L,d] and v [L,e]."""
    window, L = rule.window, q.shape[0]
    dv = jnp.zeros(v.shape, jnp.float32)
    if rule.shared:
        alone = _alone(lse, keep)
        dv = jnp.where(alone, do, 0.0).astype(jnp.float32)
        do = jnp.where(alone, 0.0, do).astype(v.dtype)
    delta = jnp.sum(do.astype(jnp.float32) * o.astype(jnp.float32), -1)
    arrays = (q, _with_margins(window, k), _with_margins(window, v))

    def one_group(start):
        x, y, u, logits, drop = _group(rule, key, arrays, keep, start)
        g, at, dot = (
            jax.lax.dynamic_slice_in_dim(z, start, window.steps.group).reshape(*x.shape[:2], -1)
            for z in (do, lse, delta)
        )
        p = jnp.exp(logits - at)
        ds = (p * (einsum("nie,nje->nij", g, u) * drop - dot)).astype(q.dtype)
        dq = einsum("nij,njd->nid", ds, y)
        dk = windows.fold(einsum("nij,nid->njd", ds, x), window.steps.chunk)
        dv = windows.fold(einsum("nij,nie->nje", (p * drop).astype(g.dtype), g), window.steps.chunk)
        return dq, dk, dv

    dq, *margins = over_groups(window.steps, one_group)
    inner = slice(window.margin, window.margin + L)
    dk, more = (windows.fold(x, window.steps.group)[inner] for x in margins)
    return dq.reshape(L, -1).astype(q.dtype), dk.astype(k.dtype), (dv + more).astype(v.dtype)


# ---- all sequences and heads ---------------------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(rule, q, k, v, keep, key):
    return _attend_forward(rule, q, k, v, keep, key)[0]


def _attend_forward(rule, q, k, v, keep, key):
    o, lse = over_pairs(rule.window.steps, partial(_forward, rule, key), q, k, v, keep)
    return o, (q, k, v, keep, key, o, lse)


def _attend_backward(rule, saved, do):
    q, k, v, keep, key, o, lse = saved
    backward = partial(_backward, rule, key)
    grads = over_pairs(rule.window.steps, backward, q, k, v, keep, o, lse, do)
    return (*grads, None, None)


_attend.defvjp(_attend_forward, _attend_backward)
