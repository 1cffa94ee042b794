"""The language model: embedding, a stack of layers, scores per token; also an encoder's hidden states.

Pre-normalised layers of attention and feed-forward, in one residual stream or in two reversible
ones (section 3). Parameters and streams are float32; projections compute in `dtype`. The trainer
knows a model by `init`, `start` and `apply`.
"""

from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp

from reformer import checks
from reformer.full import Full
from reformer.local import Local
from reformer.lsh import LSH
from reformer.reversible import Side
from reformer.sublayers import dropout
from reformer.swapping import fetch, fetch_but
from reformer.transformer import Embedding, Head, Transformer

MERGES = ("concatenate", "average")


@dataclass(frozen=True)
class Model(Transformer):
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
    tokens: how the table of ids and the head begin: 'normal' (the head Glorot's), or 'sinusoid' where ids are
        quantities such as intensities, so that neighbouring ids begin alike.
    token_stddev, position_stddev: initial size of the embedding's two parts.
    activation: of the feed-forward layers, 'relu' or 'gelu'.
    dropout: on the embedding and on the output of each sublayer, in training; shared_dropout uses
        one mask for all positions of a sequence, as the authors' code does.
    feedforward_chunk, loss_chunk: positions of a sequence computed at a time, heads_at_once: heads
        (section 3, "Chunking"); None chooses. Results do not depend on them.
    causal: False makes an encoder: every position sees all others.
    dtype: of the projections, 'float32' or 'bfloat16'.
    tie_output: the head uses the token table (and needs merged streams of the model's width).
    shares: devices that the rows of a batch are divided over, each with memory for its own pieces
        ("Chunking"); `spread` sets it, and results do not depend on it.
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
    tokens: str = "normal"
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
    shares: int = 1

    def __post_init__(self):
        self._check()
        checks.choice("merge", self.merge, MERGES)
        if self.layers % len(self.pattern):
            raise ValueError(
                f"layers is {self.layers}, but the attention pattern has {len(self.pattern)}"
                " settings; it must repeat a whole number of times"
            )
        if self.tie_output and self.merged_width != self.width:
            raise ValueError("tie_output needs merge 'average': concatenated streams are wider than the token table")

    @property
    def pattern(self):
        """The attention settings of one period of layers."""
        return self.attention if isinstance(self.attention, tuple) else (self.attention,)

    @property
    def merged_width(self):
        """Features of the merged streams, which the head reads."""
        return self.width * (2 if self.residual == "reversible" and self.merge == "concatenate" else 1)

    def stack(self, train=False):
        """The layers, as `reversible.Stack`."""
        feedforward = self._feedforward(train)
        return self._stack(
            tuple((self._self_attention(setting, self.causal, train), feedforward) for setting in self.pattern)
        )

    @partial(jax.jit, static_argnums=0)
    def init(self, key, batch=None):
        """Parameters, float32; nothing depends on the batch or its shape."""
        keys = jax.random.split(key, 3)
        streams = self.stack().begin(jnp.zeros((1, 1, self.width)))
        return {
            "embedding": Embedding(self).init(keys[0], jnp.zeros((1, 1), jnp.int32))["params"],
            "layers": self.stack().init(keys[2], self.layers),
            "head": Head(self).init(keys[1], streams)["params"],
        }

    def apply(self, params, batch, state=(), key=None, *, train=False):
        """Scores of every target token -> ({"nats", "correct", "weights"} float32 [b,l], state).

        batch: decoder_input_tokens, decoder_target_tokens int32 [b,l], decoder_loss_weights
            float32 [b,l] and decoder_segment_ids int32 [b,l], 0 for padding.
        key: draws the rotations of LSH attention (per layer, round and head, the same for
            the whole batch) and, only if `train`, dropout. None is a fixed key.
        """
        params = fetch_but(params, "layers")  # once, since a tied table is used twice
        streams = self.hidden_states(params, batch, key, train=train)
        return self._score(params, streams, batch), state

    def hidden_states(self, params, batch, key=None, *, train=False):
        """The streams after the last layer, a tuple of one or two float32 [b,l,e]."""
        key = jax.random.key(0) if key is None else key
        x = Embedding(self).apply({"params": fetch(params["embedding"])}, batch["decoder_input_tokens"])
        x = dropout(x, self.dropout if train else 0.0, jax.random.fold_in(key, 0), self.shared_dropout)
        side = Side(batch["decoder_segment_ids"] > 0)
        return self.stack(train).run(params["layers"], x, side, jax.random.fold_in(key, 1))

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
