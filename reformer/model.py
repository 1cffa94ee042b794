"""The language model: embedding, L layers of attention and feed-forward, scores per token.

A decoder with pre-normalised residuals: x + Attention(LN x), then x + FeedForward(LN x).
Parameters are float32, and so is the residual stream; projections compute in `dtype`.
Flax modules only declare parameters; they are stacked and scanned with JAX's own
transforms. The trainer knows a model by `init`, `start` and `apply`.
"""

from dataclasses import dataclass, field
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from reformer import checks, positions
from reformer.full import Full
from reformer.local import Local
from reformer.lsh import LSH
from reformer.products import einsum

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclass(frozen=True)
class Model:
    """A language model over `vocabulary` ids and at most `length` positions.

    layers, width (d_model), hidden (d_ff), heads: sizes; head_width None is width / heads.
    attention: one setting (Full, LSH, Local), or a tuple of them that repeats over the layers.
        Shared-QK settings all have the same parameters, so rounds, chunks and even Full
        versus LSH may be changed on trained parameters.
    positions: how the learned table begins, see `positions.initial`.
    token_stddev, position_stddev: initial size of the embedding's two parts.
    dropout: on the embedding and on the output of each sublayer, in training.
    dtype: of the projections, 'float32' or 'bfloat16'.
    """

    vocabulary: int
    length: int
    layers: int = 1
    width: int = 256
    hidden: int = 256
    heads: int = 4
    head_width: int | None = None
    attention: Full | LSH | Local | tuple = field(default_factory=Full)
    positions: str = "normal"
    token_stddev: float = 0.02
    position_stddev: float | None = 0.02
    dropout: float = 0.0
    dtype: str = "float32"
    tie_output: bool = False

    def __post_init__(self):
        for name in ("vocabulary", "length", "layers", "width", "hidden", "heads"):
            checks.positive(name, getattr(self, name))
        checks.choice("positions", self.positions, positions.KINDS)
        checks.choice("dtype", self.dtype, tuple(DTYPES))
        checks.rate("dropout", self.dropout)
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not a multiple of heads {self.heads}; change one of them, or set head_width"
            )
        if isinstance(self.attention, list):  # so gin files write it; models must be hashable
            object.__setattr__(self, "attention", tuple(self.attention))
        if self.layers % len(self.pattern):
            raise ValueError(
                f"layers is {self.layers}, but the attention pattern has {len(self.pattern)}"
                " settings; it must repeat a whole number of times"
            )

    @property
    def pattern(self):
        """The attention settings of one period of layers."""
        return self.attention if isinstance(self.attention, tuple) else (self.attention,)

    @property
    def blocks(self):
        """One layer module per setting of the pattern."""
        width = self.head_width or self.width // self.heads
        dtype = DTYPES[self.dtype]
        return tuple(
            Layer(self.width, self.hidden, self.heads, width, setting, self.dropout, dtype) for setting in self.pattern
        )

    @partial(jax.jit, static_argnums=0)
    def init(self, key, batch=None):
        """Parameters, float32; nothing depends on the batch or its shape."""
        keys = jax.random.split(key, 3)
        embedding = Embedding(self)
        params = {
            "embedding": embedding.init(keys[0], jnp.zeros((1, 1), jnp.int32))["params"],
            "head": Head(self).init(keys[1], jnp.zeros((1, 1, self.width)))["params"],
        }
        x, real = jnp.zeros((1, 1, self.width)), jnp.ones((1, 1), bool)
        repeats = self.layers // len(self.pattern)
        params["layers"] = tuple(
            jax.vmap(lambda key, block=block: block.init(key, x, real, key, False)["params"])(
                jax.random.split(jax.random.fold_in(keys[2], i), repeats)
            )
            for i, block in enumerate(self.blocks)
        )
        return params

    def start(self, batch_size):
        """State before the first batch: this model has none."""
        return ()

    def apply(self, params, batch, state=(), key=None, *, train=False):
        """Scores of every target token -> ({"nats", "correct", "weights"} float32 [b,l], state).

        batch: decoder_input_tokens, decoder_target_tokens int32 [b,l], decoder_loss_weights
            float32 [b,l] and decoder_segment_ids int32 [b,l], 0 for padding.
        key: draws the rotations of LSH attention (per layer, round and head, the same for
            the whole batch) and, only if `train`, dropout. None is a fixed key.
        """
        x = self.hidden_states(params, batch, key, train=train)
        logits = self.logits(params, x)
        targets = batch["decoder_target_tokens"]
        nats = jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, targets[..., None], axis=-1).squeeze(-1)
        correct = (logits.argmax(-1) == targets).astype(jnp.float32)
        weights = batch["decoder_loss_weights"].astype(jnp.float32)
        return {"nats": nats, "correct": correct, "weights": weights}, state

    def hidden_states(self, params, batch, key=None, *, train=False):
        """The residual stream after the last layer, float32 [b,l,e]."""
        tokens = batch["decoder_input_tokens"]
        real = batch["decoder_segment_ids"] > 0
        key = jax.random.key(0) if key is None else key
        x = Embedding(self).apply({"params": params["embedding"]}, tokens)
        x = _dropout(x, self.dropout if train else 0.0, jax.random.fold_in(key, self.layers))
        blocks = self.blocks

        def period(x, inputs):
            index, layers = inputs
            for i, (block, layer) in enumerate(zip(blocks, layers, strict=True)):
                at = jax.random.fold_in(key, index * len(blocks) + i)
                x = block.apply({"params": layer}, x, real, at, train)
            return x, None

        repeats = self.layers // len(blocks)
        x, _ = jax.lax.scan(period, x, (jnp.arange(repeats), params["layers"]))
        return x

    def logits(self, params, x):
        """Unnormalised log-probabilities of every id, float32 [b,l,vocabulary]."""
        tied = params["embedding"]["tokens"] if self.tie_output else None
        return Head(self).apply({"params": params["head"]}, x, tied)


class Embedding(nn.Module):
    """Tokens int32 [b,l] -> float32 [b,l,e], positions added."""

    model: Model

    @nn.compact
    def __call__(self, tokens):
        m, length = self.model, tokens.shape[1]
        if length > m.length:
            raise ValueError(
                f"the batch has {length} positions but the model has a table of {m.length};"
                f" build it with length={length} or cut the batch"
            )
        table = self.param("tokens", nn.initializers.normal(m.token_stddev), (m.vocabulary, m.width))
        place = self.param("positions", positions.initial(m.positions, m.position_stddev), (m.length, m.width))
        return table[tokens] + place[None, :length]


class Layer(nn.Module):
    """One attention and one feed-forward sublayer, each with its residual."""

    width: int
    hidden: int
    heads: int
    head_width: int
    attention: Full | LSH | Local
    dropout: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, real, key, train):
        drop = partial(_dropout, rate=self.dropout if train else 0.0)
        attention = Attention(self.width, self.heads, self.head_width, self.attention, self.dtype)
        y = nn.LayerNorm(epsilon=1e-6, name="attention_norm")(x)
        y = attention(y, real, jax.random.fold_in(key, 0), train)
        x = x + drop(y, key=jax.random.fold_in(key, 1))
        y = nn.LayerNorm(epsilon=1e-6, name="feedforward_norm")(x)
        y = FeedForward(self.width, self.hidden, self.dtype, name="feedforward")(y)
        return x + drop(y, key=jax.random.fold_in(key, 2))


class Attention(nn.Module):
    """Projections around a setting's `attend`; no biases.

    Glorot-uniform with the fan of all heads together, as in the authors' code.
    """

    width: int
    heads: int
    head_width: int
    setting: Full | LSH | Local
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, real, key, train):
        x = x.astype(self.dtype)
        shape = (self.width, self.heads, self.head_width)
        inwards = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))
        outwards = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2)

        def project(name):
            matrix = self.param(name, inwards, shape).astype(self.dtype)
            return jnp.einsum("ble,ehd->bhld", x, matrix)

        q, v = project("query"), project("value")
        k = None if self.setting.shared else project("key")
        y = self.setting.attend(q, k, v, key, causal=True, keep=real, train=train)
        matrix = self.param("out", outwards, (shape[1], shape[2], shape[0])).astype(self.dtype)
        return einsum("bhld,hde->ble", y, matrix)


class FeedForward(nn.Module):
    """relu(x A + a) B + b."""

    width: int
    hidden: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        dense = partial(nn.Dense, dtype=self.dtype, kernel_init=nn.initializers.glorot_uniform())
        x = nn.relu(dense(self.hidden, name="in")(x))
        return dense(self.width, name="out")(x).astype(jnp.float32)


class Head(nn.Module):
    """LayerNorm and the matrix to the vocabulary, float32 [b,l,vocabulary]."""

    model: Model

    @nn.compact
    def __call__(self, x, tied=None):
        m, dtype = self.model, DTYPES[self.model.dtype]
        x = nn.LayerNorm(epsilon=1e-6, name="norm")(x).astype(dtype)
        if m.tie_output:
            table = jnp.zeros((m.vocabulary, m.width)) if tied is None else tied
        else:
            table = self.param("out", nn.initializers.glorot_uniform(), (m.width, m.vocabulary)).T
        bias = self.param("bias", nn.initializers.zeros, (m.vocabulary,))
        x = einsum("ble,ve->blv", x, table.astype(dtype))
        return x + bias[None, None]


def _dropout(x, rate, key):
    """Drops entries and rescales the rest."""
    if not rate:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)
