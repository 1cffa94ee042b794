"""The translation model: an encoder and a decoder, each a stack of layers, reversible on both sides (Table 4).

Dot-product attention everywhere, as in the paper: sentences are short, and what is tested is that
reversible layers cost no quality. The two streams of a side are averaged and normalised, so that
the reversible model has exactly the parameters of the ordinary one.
"""

from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp

from reformer import checks, translation
from reformer.cross import CrossAttention
from reformer.full import Full
from reformer.reversible import Side
from reformer.sublayers import dropout, norm
from reformer.swapping import fetch_but
from reformer.transformer import Embedding, Head, Transformer

TIES = ("none", "embeddings", "all")


@dataclass(frozen=True)
class Seq2Seq(Transformer):
    """An encoder-decoder over `vocabulary` ids, the same on both sides, and at most `length` positions of each.

    layers: of the encoder, and as many of the decoder; width (d_model), hidden (d_ff), heads,
    head_width, residual, backward, activation, feedforward_chunk, loss_chunk, heads_at_once,
    dtype, shares: as in `Model`.
    attention: of all three kinds, with separate keys; its `dropout` is that of attention weights.
    tie: which tables are one: 'none'; 'embeddings', those of source and target; 'all', these and
        the matrix of the output (Table 4's 100K row; the other rows have 'none').
    positions: 'fixed' sinusoids, or a learned table of each side, see `Model`; never shared.
    token_stddev: initial size of the embeddings, as they are read.
    token_scale: what a token's row is multiplied by when it is read as an embedding. None: 1, or
        sqrt(width) where the output reads the same table (Vaswani et al. 2017, section 3.4).
    dropout: on embeddings and on the output of each sublayer.
    smoothing: share of the target's probability that the training loss spreads evenly over all
        other ids (Vaswani et al. 2017). Evaluation scores never contain it.
    """

    vocabulary: int
    length: int
    layers: int = 6
    width: int = 512
    hidden: int = 2048
    heads: int = 8
    head_width: int | None = None
    attention: Full = field(default_factory=lambda: Full(shared=False))
    residual: str = "reversible"
    backward: str | None = None
    tie: str = "none"
    positions: str = "fixed"
    axial_grid: tuple[int, ...] | None = None
    axial_widths: tuple[int, ...] | None = None
    token_stddev: float = 1.0
    token_scale: float | None = None
    position_stddev: float | None = None
    activation: str = "relu"
    dropout: float = 0.0
    shared_dropout: bool = False
    smoothing: float = 0.0
    feedforward_chunk: int | None = None
    loss_chunk: int | None = None
    heads_at_once: int | None = None
    dtype: str = "float32"
    shares: int = 1

    def __post_init__(self):
        self._check()
        checks.choice("tie", self.tie, TIES)
        checks.rate("smoothing", self.smoothing)
        if not isinstance(self.attention, Full) or self.attention.shared:
            raise ValueError(
                f"attention is {self.attention!r}; a translation model has dot-product attention with keys of"
                " their own, Full(shared=False): what the decoder looks at is another sequence"
            )

    @property
    def merged_width(self):
        """Features of the merged streams: they are averaged."""
        return self.width

    @property
    def scale(self):
        """Size of a token's embedding over that of its row in the table."""
        return self.token_scale or (self.width**0.5 if self.tie_output else 1.0)

    @property
    def tie_output(self):
        """Whether the head uses the token table."""
        return self.tie == "all"

    def encoder(self, train=False):
        """The encoder's layers, as `reversible.Stack`."""
        return self._stack(((self._self_attention(self.attention, False, train), self._feedforward(train)),))

    def decoder(self, train=False):
        """The decoder's layers. Three sublayers: the streams change roles from one layer to the next."""
        return self._stack(
            (
                (
                    self._self_attention(self.attention, True, train),
                    CrossAttention(*self._sizes, self.attention, train=train, **self._shared(train)),
                    self._feedforward(train),
                ),
            )
        )

    @partial(jax.jit, static_argnums=0)
    def init(self, key, batch=None):
        """Parameters, float32; nothing depends on the batch or its shape."""
        keys = jax.random.split(key, 6)
        one, stream = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, self.width))
        embedding = {
            "source": dict(Embedding(self).init(keys[0], one)["params"]),
            "target": dict(Embedding(self).init(keys[1], one)["params"]),
        }
        for side in embedding.values():
            side["tokens"] /= self.scale
        if self.tie != "none":
            del embedding["target"]["tokens"]
        return {
            "embedding": embedding,
            "encoder": self.encoder().init(keys[2], self.layers),
            "encoder_norm": norm().init(keys[3], stream)["params"],
            "decoder": self.decoder().init(keys[4], self.layers),
            "head": Head(self).init(keys[5], (stream,))["params"],
        }

    def apply(self, params, batch, state=(), key=None, *, train=False):
        """Scores of every target token -> ({"nats", "correct", "weights"} float32 [b,l], state).

        batch: encoder_input_tokens, encoder_segment_ids int32 [b,m]; decoder_input_tokens,
            decoder_target_tokens, decoder_segment_ids int32 [b,l], decoder_loss_weights float32
            [b,l]; segment 0 is padding.
        key: of dropout, only if `train`. None is a fixed key.
        """
        params = fetch_but(params, "encoder", "decoder")
        key = jax.random.key(0) if key is None else key
        source = batch["encoder_input_tokens"], batch["encoder_segment_ids"] > 0
        side = self.encode(params, *source, jax.random.fold_in(key, 0), train=train)
        target = batch["decoder_input_tokens"], batch["decoder_segment_ids"] > 0
        streams = self.decode(params, *target, side, jax.random.fold_in(key, 1), train=train)
        return self._score(params, streams, batch, self.smoothing if train else 0.0), state

    def encode(self, params, tokens, real, key=None, *, train=False):
        """What the decoder looks at: tokens int32 [b,m], real bool [b,m] -> float32 [b,m,e] and real."""
        key = jax.random.key(0) if key is None else key
        x = self._embedded(params, "source", tokens, jax.random.fold_in(key, 0), train)
        streams = self.encoder(train).run(params["encoder"], x, Side(real), jax.random.fold_in(key, 1))
        return norm().apply({"params": params["encoder_norm"]}, sum(streams) / len(streams)), real

    def decode(self, params, tokens, real, source, key=None, *, train=False):
        """The decoder's last streams, float32 [b,l,e] each: tokens int32 [b,l], source from `encode`."""
        key = jax.random.key(0) if key is None else key
        x = self._embedded(params, "target", tokens, jax.random.fold_in(key, 0), train)
        return self.decoder(train).run(params["decoder"], x, Side(real, *source), jax.random.fold_in(key, 1))

    def translate(self, params, tokens, real, **search):
        """The best translations that beam search finds, see `translation.translate`."""
        return translation.translate(self, params, tokens, real, **search)

    def embedding(self, params, side):
        """Parameters of `Embedding` for the side 'source' or 'target', ties and scale resolved."""
        own = params["embedding"][side]
        tokens = own["tokens"] if "tokens" in own else params["embedding"]["source"]["tokens"]
        return {**own, "tokens": self.scale * tokens}

    def _embedded(self, params, side, tokens, key, train):
        x = Embedding(self).apply({"params": self.embedding(params, side)}, tokens)
        return dropout(x, self.dropout if train else 0.0, key, self.shared_dropout)

    def _head(self, params):
        return params["head"], params["embedding"]["source"]["tokens"] if self.tie_output else None
