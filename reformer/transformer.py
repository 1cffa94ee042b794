"""What the language model and the translation model share: embedding, sublayers by their settings, head and scores."""

import math
from dataclasses import replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from reformer import checks, chunked, positions
from reformer.products import einsum
from reformer.reversible import BACKWARDS, RESIDUALS, Stack
from reformer.sublayers import ACTIVATIONS, FeedForward, SelfAttention

DTYPES = ("float32", "bfloat16")

# Elements of the logits that exist at a time on one device, unless `loss_chunk` says otherwise: 64 MiB of float32.
LOGITS_BUDGET = 2**24


class Transformer:
    """Base of `Model` and `Seq2Seq`, which are the dataclasses of its settings.

    They add `_head(params)`: the head's parameters, and the token table or None.
    """

    swappable = True  # parameters may lie in the host's memory, see `swapping`
    tokens = "normal"  # how the table of ids begins, see `Model`

    def _check(self):
        """Raises unless the settings that both models have fit each other. Lists become tuples."""
        for name in ("vocabulary", "length", "layers", "width", "hidden", "heads", "shares"):
            checks.positive(name, getattr(self, name))
        for name in ("head_width", "feedforward_chunk", "loss_chunk", "heads_at_once"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        checks.choice("residual", self.residual, RESIDUALS)
        checks.choice("positions", self.positions, positions.KINDS)
        checks.choice("tokens", self.tokens, ("normal", "sinusoid"))
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
        checks.attentions(self.attention)
        if self.positions == "axial":
            positions.check_grid(self.length, self.width, *self.axes)

    @property
    def axes(self):
        """(grid, widths) of axial positions."""
        grid = self.axial_grid or positions.propose_grid(self.length)
        return grid, self.axial_widths or positions.propose_widths(self.width, len(grid))

    def start(self, batch_size):
        """State before the first batch: these models have none."""
        return ()

    def spread(self, mesh, rows, tensor=None, entries=None):
        """This model for batches whose rows lie on the named axes of a mesh; see `shares`."""
        del tensor, entries
        return replace(self, shares=math.prod(mesh.shape[axis] for axis in rows))

    def logits(self, params, streams):
        """Unnormalised log-probabilities of every id, float32 [b,l,vocabulary]."""
        params, tied = self._head(params)
        return Head(self).apply({"params": params}, streams, tied)

    def _score(self, params, streams, batch, smoothing=0.0):
        """{"nats", "correct", "weights"} float32 [b,l] of every target token; see `cross_entropy` for smoothing."""
        targets = batch["decoder_target_tokens"]
        most = self.loss_chunk or chunked.allowed(LOGITS_BUDGET, targets.shape[0], self.shares, self.vocabulary)
        scores = partial(self._cross_entropy, smoothing)
        nats, correct = chunked.over_stretches(scores, most, self._head(params), streams, targets)
        return {"nats": nats, "correct": correct, "weights": batch["decoder_loss_weights"].astype(jnp.float32)}

    def _cross_entropy(self, smoothing, params, streams, targets):
        params, tied = params
        return cross_entropy(Head(self).apply({"params": params}, streams, tied), targets, smoothing)

    # ---- layers ------------------------------------------------------------------------------

    @property
    def _backward(self):
        return self.backward or ("invert" if self.residual == "reversible" else "store")

    def _stack(self, pattern):
        return Stack(pattern, self.residual, self._backward)

    @property
    def _sizes(self):
        return self.width, self.heads, self.head_width or self.width // self.heads

    def _shared(self, train):
        rate = self.dropout if train else 0.0
        return {"dtype": self.dtype, "rate": rate, "shared_dropout": self.shared_dropout}

    def _self_attention(self, setting, causal, train):
        rest = {"at_once": self.heads_at_once, "shares": self.shares, **self._shared(train)}
        return SelfAttention(*self._sizes, setting, causal, train=train, **rest)

    def _feedforward(self, train):
        # Plain autodiff pays for pieces with a second computation; inverting computes it anyway.
        most = self.feedforward_chunk or (None if self._backward == "invert" else self.length)
        rest = {"most": most, "shares": self.shares, **self._shared(train)}
        return FeedForward(self.width, self.hidden, self.activation, **rest)


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

    model: Transformer

    @nn.compact
    def __call__(self, tokens, at=None):
        m, length = self.model, tokens.shape[1]
        if length > m.length:
            raise ValueError(
                f"the batch has {length} positions but the model has a table of {m.length};"
                f" build it with length={length} or cut the batch"
            )
        table = self.param("tokens", positions.initial(m.tokens, m.token_stddev), (m.vocabulary, m.width))
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


def alike(key, shape, dtype=jnp.float32):
    """Initialiser of a head [e,v] in which neighbouring ids have similar columns, as large as Glorot's."""
    width, vocabulary = shape
    # Unit vectors whose products fall with the distance of two ids, turned at random.
    ids = positions.initial("sinusoid", width**-0.5)(key, (vocabulary, width))
    turn = nn.initializers.orthogonal((2 * width / (width + vocabulary)) ** 0.5)(key, (width, width))
    return (turn @ ids.T).astype(dtype)


class Head(nn.Module):
    """The streams merged, LayerNorm, and the matrix to the vocabulary: float32 [b,l,vocabulary]."""

    model: Transformer

    @nn.compact
    def __call__(self, streams, tied=None):
        m = self.model
        concatenated = m.merged_width != m.width
        x = jnp.concatenate(streams, -1) if concatenated else sum(streams) / len(streams)
        x = nn.LayerNorm(epsilon=1e-6, name="norm")(x).astype(m.dtype)
        if m.tie_output:
            table = jnp.zeros((m.vocabulary, m.width)) if tied is None else tied
        else:
            begin = alike if m.tokens == "sinusoid" else nn.initializers.glorot_uniform()
            table = self.param("out", begin, (m.merged_width, m.vocabulary)).T
        bias = self.param("bias", nn.initializers.zeros, (m.vocabulary,))
        return einsum("ble,ve->blv", x, table.astype(m.dtype)) + bias[None, None]
