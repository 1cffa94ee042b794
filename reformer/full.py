"""Exact attention in memory linear in the length, shared-QK or with separate keys.

Reformer, section 2 ("memory-efficient attention", "shared-QK attention"). This is
the baseline that LSH attention is measured against, so it takes every exact saving:

- keys are visited block by block with an online softmax: no l x m array exists;
- in causal attention the blocks above the diagonal are never visited;
- the backward pass recomputes each block from the saved log-normalisers, and the
  dropout mask from its key.

Shapes use the letters of the package docstring. A padding mask is boolean and True
means keep. Rows that may look at nothing are defined: with shared queries and keys a
position copies its own value, and where there is only padding the output is zero.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import checks
from reformer.products import einsum

# A masked logit lies below the floor, and the running maximum never falls below the
# floor: exp(MASKED - maximum) is exactly 0 in every row, without an infinity anywhere.
FLOOR = -1e30
MASKED = -2e30

# Under the root of a mean square, as in the authors' code.
EPSILON = 1e-6


@dataclass(frozen=True)
class Full:
    """Setting of exact attention.

    shared: queries serve as keys, normalised (section 2); a position sees itself only
        when it may see nothing else. Otherwise keys are a projection of their own.
    scale: of the shared logits; see `shared_keys`. Separate keys use q.k / sqrt(d).
    block: queries and keys taken at once; memory grows with its square.
    dropout: share of the attention weights dropped in training.
    """

    shared: bool = True
    scale: str = "official"
    block: int = 512
    dropout: float = 0.0

    def __post_init__(self):
        checks.choice("scale", self.scale, SCALES)
        checks.positive("block", self.block)
        checks.rate("dropout", self.dropout)

    def visits(self, length):
        """Blocks of keys that a block of queries visits in causal attention over a length, on the average."""
        return (-(-length // self.block) + 1) / 2

    def draw(self, key, heads, length, width):
        """Nothing is drawn here; see `LSH.draw`."""
        return None

    def decide(self, q, directions):
        """Nothing is decided at random here; see `LSH.decide`."""
        return None

    def attend(self, q, k, v, key=None, *, causal=True, keep=None, train=False, decision=None):
        """q, v [b,h,l,d] and k alike (None if shared) -> [b,h,l,d]."""
        checks.keys_given(k, self.shared)
        rest = dict(
            causal=causal,
            keep=keep,
            block=self.block,
            dropout=self.dropout if train else 0.0,
            key=key,
        )
        if self.shared:
            return shared_attention(q, v, scale=self.scale, **rest)
        return attention(q, k, v, **rest)


SCALES = ("official", "paper")


def shared_keys(q, scale="official"):
    """Keys of shared-QK attention: q [...,d] -> unit vectors [...,d], scaled.

    'official' makes the logit q_i.q_j / |q_j|, as the authors' code does: the length of a
    query is a learned temperature. 'paper' is the text read literally (section 2, unit
    keys under Eq. 1) and divides by sqrt(d) once more.
    The norm is taken in float32 with the code's 1e-6 under the mean square.
    """
    d = q.shape[-1]
    x = q.astype(jnp.float32)
    norm = jnp.sqrt(d * (jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON))
    if scale == "paper":
        norm = norm * jnp.sqrt(jnp.float32(d))
    return (x / norm).astype(q.dtype)


def attention(q, k, v, *, causal=True, keep=None, block=512, dropout=0.0, key=None):
    """Ordinary attention, Eq. 1: softmax(q k^T / sqrt(d)) v.

    q [b,h,l,d], k [b,h,m,d], v [b,h,m,e] -> [b,h,l,e]; keep bool [b,m], True = keep.
    Causal attention needs l = m. Dropout acts on the normalised weights; its mask is
    shared by the batch and the heads, as Flax's attention does by default.
    """
    q = q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
    return _blocked(q, k, v, keep, key, causal, False, block, dropout)


def shared_attention(q, v, *, causal=True, keep=None, scale="official", block=512, dropout=0.0, key=None):
    """Shared-QK attention (section 2): keys are `shared_keys(q)`.

    q, v [b,h,l,d] -> [b,h,l,d]; keep bool [b,l], True = keep. A position attends to
    itself only when nothing else is allowed, as the first position of causal attention.
    """
    k = shared_keys(q, scale)
    return _blocked(q, k, v, keep, key, causal, True, block, dropout)


class _Rule(NamedTuple):
    """What is fixed when the computation is compiled."""

    causal: bool
    shared: bool
    dropout: float


def _blocked(q, k, v, keep, key, causal, shared, block, dropout):
    """Checks, cuts the sequences into equal blocks, attends, and joins them again."""
    (b, h, length, _), m = q.shape, k.shape[2]
    checks.attention_shapes(q, k, v, keep)
    if (causal or shared) and length != m:
        raise ValueError(
            f"causal and shared-QK attention need as many queries as keys, but there are {length}"
            f" queries and {m} keys; for attention to another sequence pass causal=False"
        )
    checks.dropout_key(dropout, key)
    q = _cut(q, block)
    k, v = _cut(k, block), _cut(v, block)
    columns = k.shape[0] * k.shape[3]
    if keep is not None or columns != m:
        # Padding to whole blocks is hidden by the same mask as the caller's padding.
        keep = jnp.ones((b, m), bool) if keep is None else keep
        keep = jnp.pad(keep, ((0, 0), (0, columns - m)))
        keep = keep.reshape(b, k.shape[0], k.shape[3]).swapaxes(0, 1)
    o = _attend(_Rule(causal, shared, dropout), q, k, v, keep, key)
    n, c = o.shape[0], o.shape[3]
    return jnp.moveaxis(o, 0, 2).reshape(b, h, n * c, -1)[:, :, :length]


def _cut(x, block):
    """[b,h,l,d] -> [n,b,h,c,d] with n c >= l, n as small as `block` allows, zeros at the end."""
    b, h, length, d = x.shape
    n = -(-length // block)
    c = -(-length // n)
    x = jnp.pad(x, ((0, 0), (0, 0), (0, n * c - length), (0, 0)))
    return jnp.moveaxis(x.reshape(b, h, n, c, d), 2, 0)


def _legal(rule, keep, i, j, c, w):
    """May query block i (c rows) look at key block j (w columns)? bool [b or 1,1,c,w], or None."""
    rows = i * c + jnp.arange(c)[:, None]
    columns = j * w + jnp.arange(w)[None, :]
    legal = None
    if rule.causal:
        legal = rows > columns if rule.shared else rows >= columns
    elif rule.shared:
        legal = rows != columns
    if legal is not None:
        legal = legal[None, None]
    if keep is not None:
        real = keep[j][:, None, None, :]
        legal = real if legal is None else legal & real
    return legal


def _logits(rule, q, k, keep, i, j):
    """Masked logits of one block pair, float32 [b,h,c,w]."""
    x = einsum("bhid,bhjd->bhij", q, k)
    legal = _legal(rule, keep, i, j, q.shape[-2], k.shape[-2])
    return x if legal is None else jnp.where(legal, x, MASKED)


def _survivors(rule, key, i, j, n, c, w):
    """Dropout factors (0 or 1/(1-rate)) of one block pair, float32 [1,1,c,w]."""
    drawn = jax.random.bernoulli(jax.random.fold_in(key, i * n + j), 1 - rule.dropout, (1, 1, c, w))
    return drawn / (1 - rule.dropout)


def _forward(rule, q, k, v, keep, key):
    n = k.shape[0]
    (b, h, c), e = q.shape[1:4], v.shape[-1]
    w = k.shape[3]

    def row(i):
        def step(j, carry):
            top, total, o = carry
            x = _logits(rule, q[i], k[j], keep, i, j)
            peak = jnp.maximum(top, x.max(-1))
            p = jnp.exp(x - peak[..., None])
            fade = jnp.exp(top - peak)
            total = total * fade + p.sum(-1)
            if rule.dropout:  # the normaliser keeps what the output drops
                p = p * _survivors(rule, key, i, j, n, c, w)
            o = o * fade[..., None] + einsum("bhij,bhje->bhie", p.astype(v.dtype), v[j])
            return peak, total, o

        start = (
            jnp.full((b, h, c), FLOOR),
            jnp.zeros((b, h, c)),
            jnp.zeros((b, h, c, e)),
        )
        top, total, o = jax.lax.fori_loop(0, i + 1 if rule.causal else n, step, start)
        return o / jnp.where(total > 0, total, 1.0)[..., None], top + jnp.log(jnp.where(total > 0, total, 1.0))

    o, lse = jax.lax.map(row, jnp.arange(q.shape[0]))
    if rule.shared:
        o = jnp.where(_alone(lse, keep), v.astype(o.dtype), o)
    return o.astype(v.dtype), lse


def _alone(lse, keep):
    """Rows [n,b,h,c,1] that may see nothing but themselves."""
    alone = lse <= FLOOR
    if keep is not None:
        alone &= keep[:, :, None, :]
    return alone[..., None]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(rule, q, k, v, keep, key):
    """q [n,b,h,c,d], k and v [N,b,h,w,...], keep [N,b,w] or None -> [n,b,h,c,e]."""
    return _forward(rule, q, k, v, keep, key)[0]


def _attend_forward(rule, q, k, v, keep, key):
    o, lse = _forward(rule, q, k, v, keep, key)
    return o, (q, k, v, keep, key, o, lse)


def _attend_backward(rule, saved, do):
    q, k, v, keep, key, o, lse = saved
    n, c, w = k.shape[0], q.shape[3], k.shape[3]
    f32 = jnp.float32
    dv = jnp.zeros(v.shape, f32)
    if rule.shared:  # a lonely row copied its own value
        alone = _alone(lse, keep)
        dv = jnp.where(alone, do.astype(f32), 0.0)
        do = jnp.where(alone, jnp.zeros((), do.dtype), do)
    delta = einsum("nbhce,nbhce->nbhc", do, o)

    def row(carry, i):
        def step(j, carry):
            dq, dk, dv = carry
            p = jnp.exp(_logits(rule, q[i], k[j], keep, i, j) - lse[i][..., None])
            dp = einsum("bhie,bhje->bhij", do[i], v[j])
            kept = p
            if rule.dropout:
                survivors = _survivors(rule, key, i, j, n, c, w)
                kept, dp = p * survivors, dp * survivors
            ds = (p * (dp - delta[i][..., None])).astype(q.dtype)
            dv = dv.at[j].add(einsum("bhij,bhie->bhje", kept.astype(do.dtype), do[i]))
            dk = dk.at[j].add(einsum("bhij,bhid->bhjd", ds, q[i]))
            dq = dq + einsum("bhij,bhjd->bhid", ds, k[j])
            return dq, dk, dv

        dq, dk, dv = jax.lax.fori_loop(0, i + 1 if rule.causal else n, step, (jnp.zeros(q.shape[1:], f32), *carry))
        return (dk, dv), dq

    (dk, dv), dq = jax.lax.scan(row, (jnp.zeros(k.shape, f32), dv), jnp.arange(q.shape[0]))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), None, None


_attend.defvjp(_attend_forward, _attend_backward)
