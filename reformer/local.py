"""Local attention: a position looks at its own chunk of the sequence and the chunks beside it.

Not in the paper; the authors' enwik8 setting alternates it with LSH attention. The window
is that of `lsh.py` without the sorting. Memory is linear in the length: the chunks'
logits are recomputed in the backward pass.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from reformer import checks
from reformer.full import MASKED, shared_keys
from reformer.products import einsum


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

    def decide(self, q, key):
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
):
    """q, k [b,h,l,d], v [b,h,l,e] -> [b,h,l,e]; the logits are q.k, any scale is the caller's.

    chunk, before, after: a query sees its own chunk, `before` chunks before it and `after`
        after it (causal attention sees nothing after itself, whatever `after` is). The
        sequence does not wrap around; its last chunk may be short.
    shared: a position sees itself only when it may see nothing else.
    keep: bool [b,l], True = keep. Rows that see nothing are zero, or copy their own value
        if shared.
    dropout: share of the weights dropped; one mask per chunk for the batch and the heads.
    """
    checks.attention_shapes(q, k, v, keep)
    checks.dropout_key(dropout, key)
    if q.shape != k.shape:
        raise ValueError(f"local attention has as many keys as queries; got {q.shape}, {k.shape}")
    (b, h, length, _), c = q.shape, min(chunk, q.shape[2])
    if causal:
        after = 0
    n = -(-length // c)
    keep = jnp.ones((b, length), bool) if keep is None else keep
    keep = jnp.pad(keep, ((0, 0), (0, n * c - length)))
    q, k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, n * c - length), (0, 0))) for x in (q, k, v))
    q, k, v = (x.reshape(b, h, n, c, -1) for x in (q, k, v))
    look = partial(_windows, before=before, after=after)

    at = jnp.arange(n * c, dtype=jnp.int32).reshape(1, 1, n, c, 1)
    seen = look(at + 1)[..., 0] - 1  # outside the sequence is position -1
    rows, columns = at, seen[..., None, :]
    legal = columns >= 0
    if causal:
        legal &= columns < rows if shared else columns <= rows
    elif shared:
        legal &= columns != rows
    legal = legal & look(keep.reshape(b, 1, n, c, 1))[..., None, :, 0]

    @jax.checkpoint
    def attend(q, k, v):
        x = einsum("bhnid,bhnjd->bhnij", q, look(k))
        x = jnp.where(legal, x, MASKED)
        p = jnp.where(legal, jax.nn.softmax(x, axis=-1), 0.0)
        if dropout:
            kept = jax.random.bernoulli(key, 1 - dropout, (1, 1, *p.shape[2:]))
            p = p * kept / (1 - dropout)
        return einsum("bhnij,bhnje->bhnie", p.astype(v.dtype), look(v)).astype(v.dtype)

    o = attend(q, k, v)
    if shared:
        alone = ~legal.any(-1, keepdims=True) & keep.reshape(b, 1, n, c, 1)
        o = jnp.where(alone, v, o)
    return o.reshape(b, h, n * c, -1)[:, :, :length]


def _windows(x, before, after):
    """[b,h,n,c,d] -> [b,h,n,w,d]: each chunk beside its neighbours, zeros beyond the ends."""
    n = x.shape[2]
    x = jnp.pad(x, ((0, 0), (0, 0), (before, after), (0, 0), (0, 0)))
    return jnp.concatenate([x[:, :, o : o + n] for o in range(before + 1 + after)], axis=3)
