"""One layer: attention over segment, cache and memory, then a feed-forward; parameters only, the maths is elsewhere."""

from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from memorizing import attention, memory, retrieve, ring, shards
from memorizing.products import einsum


class Look(NamedTuple):
    """What a memory layer did with one segment; the leaves begin with the axis b."""

    index: jax.Array  # [b,h,l,k] int32, entries retrieved, best first
    real: jax.Array  # [b,h,l,k] bool, False where the memory holds fewer
    weight: jax.Array  # [b,h,l,k] float32, of each in the memory's own softmax
    age: jax.Array  # [b,h,l,k] int32, tokens between the retrieved one and the query, 0 for neighbours
    share: jax.Array  # [b,h,l] float32, of the memory in the output
    recall: jax.Array  # [b,h,l] float32, share of the k best that was found; 1 where there are none


class Layer(nn.Module):
    """x + Attention(norm x), then x + FeedForward(norm x); root-mean-square norms, no biases.

    model: its setting. remembers: whether this layer has a memory.
    """

    model: "Model"  # noqa: F821, that module imports this one
    remembers: bool = False

    @nn.compact
    def __call__(self, x, real, past, memories, key, train, inspect=False):
        """x [b,l,e] float32, real [b,l], past (None without a cache), memories (None unless it remembers)
        -> x, keys and values [b,h,l,d] to store, and a Look if inspect (else None)."""
        m = self.model
        norm = partial(nn.RMSNorm, epsilon=1e-6, dtype=jnp.float32)
        drop = partial(dropout, rate=m.dropout if train else 0.0)
        y = drop(norm(name="attention_norm")(x), key=jax.random.fold_in(key, 0))
        q, k, v, scale = Projections(m, name="projections")(y)
        biased = m.bias == "everywhere" or (m.bias == "local" and not self.remembers)
        table = self.param("bias", nn.initializers.zeros, (m.heads, attention.BIAS_BUCKETS)) if biased else None
        local = attention.attend(
            q,
            k,
            v,
            scale,
            table,
            past,
            real,
            strict=m.strict,
            dropout=m.attention_dropout if train else 0.0,
            key=jax.random.fold_in(key, 1),
        )
        look = None
        if self.remembers:
            scaled = (q * scale[None, :, None, None]).astype(q.dtype)
            found = checkpoint_name(
                shards.find(m.layout, m.search, m.neighbours, q, memories.keys, ring.size(memories)), "found"
            )
            recalled = shards.read(m.layout, scaled, memories.keys, memories.values, found, m.null_keys)
            gate = self.param("gate", nn.initializers.zeros, (m.heads,)) if m.combination == "gate" else None
            o, share = memory.combine(m.combination, local, recalled, gate)
            if inspect:
                look = look_at(m, q, scaled, memories, found, share)
        else:
            o = local.output
        outwards = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", in_axis=(0, 1), out_axis=2)
        out = self.param("out", outwards, (m.heads, m.head_width, m.width)).astype(m.number)
        x = x + einsum("bhle,hed->bld", o.astype(m.number), out)
        y = FeedForward(m, name="feedforward")(norm(name="feedforward_norm")(x))
        return x + drop(y, key=jax.random.fold_in(key, 2)), k, v, look


class Projections(nn.Module):
    """x [b,l,e] -> q, k, v [b,h,l,d] and the scale of the scores [h].

    Queries and keys are normalised and the scale is learned, or (normalise off) 1/sqrt(d).
    """

    model: "Model"  # noqa: F821

    @nn.compact
    def __call__(self, x):
        m = self.model
        start = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", in_axis=0, out_axis=(1, 2))
        shape = (m.width, m.heads, m.head_width)
        x = x.astype(m.number)
        q, k, v = (
            jnp.einsum("ble,ehd->bhld", x, self.param(name, start, shape).astype(m.number))
            for name in ("query", "key", "value")
        )
        if not m.normalise:
            return q, k, v, jnp.full((m.heads,), m.head_width**-0.5)
        scale = self.param("scale", nn.initializers.constant(m.sharpness), (m.heads,))
        return attention.unit(q), attention.unit(k), v, jnp.abs(scale)


class FeedForward(nn.Module):
    """relu(x A) B."""

    model: "Model"  # noqa: F821

    @nn.compact
    def __call__(self, x):
        m = self.model
        start = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
        dense = partial(nn.Dense, use_bias=False, dtype=m.number, kernel_init=start)
        x = nn.relu(dense(m.hidden, name="in")(x))
        return dense(m.width, name="out")(x).astype(jnp.float32)


def look_at(m, q, scaled, memories, found, share):
    """Fills in a Look; the exact search that recall is measured against is made for it."""
    best = retrieve.find(retrieve.Search("sorted"), m.neighbours, q, memories.keys, ring.size(memories))
    # A match of equal scores may choose another entry, which is no miss.
    hits = (found.score >= best.score[..., -1:] - 1e-6) & found.real
    wanted = jnp.maximum(best.real.sum(-1), 1)
    recall = jnp.where(best.real.any(-1), jnp.minimum(hits.sum(-1), wanted) / wanted, 1.0)
    position = jnp.arange(q.shape[2], dtype=jnp.int32)[None, None, :, None]
    age = ring.age(memories, found.index) + position
    weight = memory.weights(scaled, memories.keys, found, m.null_keys)
    return Look(found.index, found.real, weight, age, share, recall)


def dropout(x, rate, key):
    """Drops entries and rescales the rest."""
    if not rate:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)
