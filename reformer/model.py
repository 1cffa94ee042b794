"""The language model: embedding, a stack of layers, scores per token; also an encoder's hidden states.

Pre-normalised layers of attention and feed-forward, in one residual stream or in two reversible
ones (section 3). Parameters and streams are float32; projections compute in `dtype`. The trainer
knows a model by `init`, `start` and `apply`.
"""

from dataclasses import dataclass, field
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from reformer import checks, chunked, positions
from reformer.full import Full
from reformer.local import Local
from reformer.lsh import LSH
from reformer.products import einsum
from reformer.reversible import BACKWARDS, RESIDUALS, Side, Stack
from reformer.sublayers import ACTIVATIONS, FeedForward, SelfAttention, dropout
from reformer.swapping import fetch, fetch_but

DTYPES = ("float32", "bfloat16")
MERGES = ("concatenate", "average")

# Elements of the logits that exist at a time, unless `loss_chunk` says otherwise: 64 MiB of float32.
LOGITS_BUDGET = 2**24


@dataclass(frozen=True)
class Model:
    """A language model over `vocabulary` ids and at most `length` positions.

    layers, width (d_model), hidden (d_ff), heads: sizes; head_width None is width / heads.
    attention: one setting (Full, LSH, Local), or a tuple of them that repeats over the layers.
        Shared-QK settings all have the same parameters, so rounds, chunks and even Full
        versus LSH may be changed on trained parameters.
    residual: 'single' or 'reversible'. backward: 'store', 'remat' or 'invert', see
        `reversible.Stack`; None is 'invert' where it can be, else 'store'. It changes memory and
        time, and the numbers only by rounding.
    merge: how two streams meet before the head: 'concatenate' (the authors' language models) or
        'average' (their translation models, with exactly the parameters of a single stream).
    positions: how the learned table begins ('normal', 'sinusoid'), or 'axial', with axial_grid and
        axial_widths, a number per axis (None: proposed by `positions`), or 'fixed': sinusoids, not learned.
    token_stddev, position_stddev: initial size of the embedding's two parts.
    activation: of the feed-forward layers, 'relu' or 'gelu'.
    dropout: on the embedding and on the output of each sublayer, in training; shared_dropout uses
        one mask for all positions of a sequence, as the authors' code does.
    feedforward_chunk, loss_chunk: positions of a sequence computed at a time, heads_at_once: heads
        (section 3, "Chunking"); None chooses. Results do not depend on them.
    causal: False makes an encoder: every position sees all others.
    dtype: of the projections, 'float32' or 'bfloat16'.
    tie_output: the head uses the token table (and needs merged streams of the model's width).
    """

    vocabulary: int
    length: int
    layers: int = 1
    width: int = 256
    hidden: int = 256
    heads: int = 4
    head_width: int | None = None
    attention: Full | LSH | Local | tuple = field(default_factory=Full)
    residual: str = "single"
    backward: str | None = None
    merge: str = "concatenate"
    positions: str = "normal"
    axial_grid: tuple[int, ...] | None = None
    axial_widths: tuple[int, ...] | None = None
    token_stddev: float = 0.02
    position_stddev: float | None = 0.02
    activation: str = "relu"
    dropout: float = 0.0
    shared_dropout: bool = False
    feedforward_chunk: int | None = None
    loss_chunk: int | None = None
    heads_at_once: int | None = None
    causal: bool = True
    dtype: str = "float32"
    tie_output: bool = False

    swappable = True  # parameters may lie in the host's memory, see `swapping`

    def __post_init__(self):
        for name in ("vocabulary", "length", "layers", "width", "hidden", "heads"):
            checks.positive(name, getattr(self, name))
        for name in ("head_width", "feedforward_chunk", "loss_chunk", "heads_at_once"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        checks.choice("residual", self.residual, RESIDUALS)
        checks.choice("merge", self.merge, MERGES)
        checks.choice("positions", self.positions, positions.KINDS)
        checks.choice("activation", self.activation, tuple(ACTIVATIONS))
        checks.choice("dtype", self.dtype, DTYPES)
        checks.rate("dropout", self.dropout)
        if self.backward is not None:
            checks.choice("backward", self.backward, BACKWARDS)
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not a multiple of heads {self.heads}; change one of them, or set head_width"
            )
        for name in ("attention", "axial_grid", "axial_widths"):
            if isinstance(getattr(self, name), list):  # so gin files write it; models must be hashable
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.layers % len(self.pattern):
            raise ValueError(
                f"layers is {self.layers}, but the attention pattern has {len(self.pattern)}"
                " settings; it must repeat a whole number of times"
            )
        if self.positions == "axial":
            positions.check_grid(self.length, self.width, *self.axes)
        if self.tie_output and self.merged_width != self.width:
            raise ValueError("tie_output needs merge 'average': concatenated streams are wider than the token table")

    @property
    def pattern(self):
        """The attention settings of one period of layers."""
        return self.attention if isinstance(self.attention, tuple) else (self.attention,)

    @property
    def axes(self):
        """(grid, widths) of axial positions."""
        grid = self.axial_grid or positions.propose_grid(self.length)
        return grid, self.axial_widths or positions.propose_widths(self.width, len(grid))

    @property
    def merged_width(self):
        """Features of the merged streams, which the head reads."""
        return self.width * (2 if self.residual == "reversible" and self.merge == "concatenate" else 1)

    def stack(self, train=False):
        """The layers, as `reversible.Stack`."""
        backward = self.backward or ("invert" if self.residual == "reversible" else "store")
        rate = self.dropout if train else 0.0
        shared = {"dtype": self.dtype, "rate": rate, "shared_dropout": self.shared_dropout}
        width = self.head_width or self.width // self.heads
        # Plain autodiff pays for pieces with a second computation; inverting computes it anyway.
        most = self.feedforward_chunk or (None if backward == "invert" else self.length)
        feedforward = FeedForward(self.width, self.hidden, self.activation, most=most, **shared)
        return Stack(
            tuple(
                (
                    SelfAttention(
                        self.width, self.heads, width, setting, self.causal, train=train,
                        at_once=self.heads_at_once, **shared,
                    ),
                    feedforward,
                )
                for setting in self.pattern
            ),
            self.residual,
            backward,
        )  # fmt: skip

    @partial(jax.jit, static_argnums=0)
    def init(self, key, batch=None):
        """Parameters, float32; nothing depends on the batch or its shape."""
        keys = jax.random.split(key, 3)
        streams = (jnp.zeros((1, 1, self.width)),) * (1 if self.residual == "single" else 2)
        return {
            "embedding": Embedding(self).init(keys[0], jnp.zeros((1, 1), jnp.int32))["params"],
            "layers": self.stack().init(keys[2], self.layers),
            "head": Head(self).init(keys[1], streams)["params"],
        }

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
        params = fetch_but(params, "layers")  # once, since a tied table is used twice
        streams = self.hidden_states(params, batch, key, train=train)
        targets = batch["decoder_target_tokens"]
        most = self.loss_chunk or max(1, LOGITS_BUDGET // (targets.shape[0] * self.vocabulary))
        nats, correct = chunked.over_stretches(self._scores, most, self._head(params), streams, targets)
        weights = batch["decoder_loss_weights"].astype(jnp.float32)
        return {"nats": nats, "correct": correct, "weights": weights}, state

    def hidden_states(self, params, batch, key=None, *, train=False):
        """The streams after the last layer, a tuple of one or two float32 [b,l,e]."""
        key = jax.random.key(0) if key is None else key
        x = Embedding(self).apply({"params": fetch(params["embedding"])}, batch["decoder_input_tokens"])
        x = dropout(x, self.dropout if train else 0.0, jax.random.fold_in(key, 0), self.shared_dropout)
        side = Side(batch["decoder_segment_ids"] > 0)
        return self.stack(train).run(params["layers"], x, side, jax.random.fold_in(key, 1))

    def logits(self, params, streams):
        """Unnormalised log-probabilities of every id, float32 [b,l,vocabulary]."""
        params, tied = self._head(params)
        return Head(self).apply({"params": params}, streams, tied)

    def decoder(self, capacity):
        """One token at a time, `capacity` of them at most: see `decode.Decoder`."""
        from reformer import decode  # which imports this file

        return decode.Decoder(self, capacity)

    def generate(self, params, prompt, count, key, *, real=None, eos=None, **sampling):
        """Draws `count` tokens behind each prompt int32 [b,l], of any length -> int32 [b,count].

        real: bool [b,l], False for padding. eos: an id that ends a row. sampling: temperature, top_k,
        top_p, ids, see `search.Sampling`. All in one compiled loop, see `decode.generate`.
        """
        from reformer import decode, search

        return decode.generate(self, params, prompt, count, key, search.Sampling(**sampling), real, eos)

    def _head(self, params):
        return fetch((params["head"], params["embedding"]["tokens"] if self.tie_output else None))

    def _scores(self, params, streams, targets):
        """Cross-entropy in nats, and 1 where the most likely id is the target; float32 [b,l] both."""
        params, tied = params
        return cross_entropy(Head(self).apply({"params": params}, streams, tied), targets)


def cross_entropy(logits, targets, smoothing=0.0):
    """Nats of each target, and 1 where it is the most likely id: logits [b,l,v], int32 [b,l] -> float32 [b,l] both.

    smoothing: share of the target's probability that goes to all other ids in equal parts.
    """
    # A gather's gradient would be a scatter.
    mine = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2) == targets[..., None]
    share = jnp.where(mine, 1 - smoothing, smoothing / max(1, logits.shape[-1] - 1))
    nats = jax.nn.logsumexp(logits, axis=-1) - (share * logits).sum(-1)
    return nats, (logits.argmax(-1) == targets).astype(jnp.float32)


class Embedding(nn.Module):
    """Tokens int32 [b,l] -> float32 [b,l,e], positions added: 0 to l - 1, or those of `at` int32 [b,l]."""

    model: Model

    @nn.compact
    def __call__(self, tokens, at=None):
        m, length = self.model, tokens.shape[1]
        if length > m.length:
            raise ValueError(
                f"the batch has {length} positions but the model has a table of {m.length};"
                f" build it with length={length} or cut the batch"
            )
        table = self.param("tokens", nn.initializers.normal(m.token_stddev), (m.vocabulary, m.width))
        begin = positions.initial(m.positions, m.position_stddev)
        if m.positions == "fixed":
            rows = positions.sinusoids(length, m.width) if at is None else positions.sinusoids_at(at, m.width)
        elif m.positions == "axial":
            tables = [self.param(f"positions_{i}", begin, s) for i, s in enumerate(zip(*m.axes, strict=True))]
            rows = positions.axial_rows(tables, length) if at is None else positions.axial_at(tables, at)
        else:
            rows = self.param("positions", begin, (m.length, m.width))
            rows = rows[:length] if at is None else rows[at]
        return table[tokens] + (rows[None] if at is None else rows)


class Head(nn.Module):
    """The streams merged, LayerNorm, and the matrix to the vocabulary: float32 [b,l,vocabulary]."""

    model: Model

    @nn.compact
    def __call__(self, streams, tied=None):
        m = self.model
        concatenated = m.merged_width != m.width
        x = jnp.concatenate(streams, -1) if concatenated else sum(streams) / len(streams)
        x = nn.LayerNorm(epsilon=1e-6, name="norm")(x).astype(m.dtype)
        if m.tie_output:
            table = jnp.zeros((m.vocabulary, m.width)) if tied is None else tied
        else:
            table = self.param("out", nn.initializers.glorot_uniform(), (m.merged_width, m.vocabulary)).T
        bias = self.param("bias", nn.initializers.zeros, (m.vocabulary,))
        return einsum("ble,ve->blv", x, table.astype(m.dtype)) + bias[None, None]
