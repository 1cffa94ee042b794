"""The sublayers of `reversible.Stack`: attention and feed-forward, each with the norm before it.

Flax modules declare the parameters (float32) and hold the arithmetic of one piece: all positions of
some heads, or all features of some positions. The sublayers cut the work into pieces.
Projections compute in `dtype`; what comes out is float32, as are the streams it is added to.
"""

from dataclasses import dataclass
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from reformer import chunked
from reformer.full import Full
from reformer.local import Local
from reformer.lsh import LSH
from reformer.products import einsum

# Elements of one inner array on one device from which work is cut into pieces: 128 MiB of float32,
# for all heads of an attention layer, and 16 MiB for the hidden layer of a feed-forward.
HEADS_BUDGET = 2**25
HIDDEN_BUDGET = 2**22

ACTIVATIONS = {"relu": nn.relu, "gelu": partial(nn.gelu, approximate=True)}


def norm():
    """LayerNorm over the features, with scale and bias."""
    return nn.LayerNorm(epsilon=1e-6)


def dropout(x, rate, key, shared=False):
    """Drops entries of x [b,l,e] and rescales the rest; `shared`: one mask for all positions."""
    if not rate:
        return x
    shape = (x.shape[0], 1, x.shape[2]) if shared else x.shape
    kept = jnp.broadcast_to(jax.random.bernoulli(key, 1 - rate, shape), x.shape)
    return jnp.where(kept, x / (1 - rate), 0.0)


# Glorot-uniform with the fan of all heads together, as in the authors' code: [e,h,d] and [h,d,e].
INWARDS = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))
OUTWARDS = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2)


def project(matrix, x, dtype):
    """x [b,l,e] through one matrix per head [e,h,d] -> [b,h,l,d], in `dtype`."""
    return jnp.einsum("ble,ehd->bhld", x.astype(dtype), matrix.astype(dtype))


def join(matrix, y, dtype):
    """Heads y [b,h,l,d] through the output matrix [h,d,e] -> float32 [b,l,e]."""
    return einsum("bhld,hde->ble", y, matrix.astype(dtype))


class Heads(nn.Module):
    """Projections around an attention, for some heads: x [b,l,e] -> float32 [b,l,e]; no biases.

    `attend(q, k, v)` gets [b,h,l,d] each, k None if `shared`, and returns y [b,h,l,d] and anything else.
    """

    width: int
    heads: int
    head_width: int
    shared: bool
    dtype: str

    @nn.compact
    def __call__(self, x, attend):
        x = x.astype(self.dtype)
        shape = (self.width, self.heads, self.head_width)

        def projected(name):
            return project(self.param(name, INWARDS, shape), x, self.dtype)

        q, v = projected("query"), projected("value")
        y, rest = attend(q, None if self.shared else projected("key"), v)
        return join(self.param("out", OUTWARDS, (*shape[1:], shape[0])), y, self.dtype), rest


@dataclass(frozen=True)
class SelfAttention:
    """Dropout(Heads(LayerNorm x)); see `reversible` for the calls.

    at_once: heads computed at the same time, of which `heads` is a multiple; None for as many as
    `HEADS_BUDGET` allows where a batch is divided over `shares` devices.
    """

    width: int
    heads: int
    head_width: int
    setting: Full | LSH | Local
    causal: bool = True
    dtype: str = "float32"
    rate: float = 0.0
    shared_dropout: bool = False
    train: bool = False
    at_once: int | None = None
    shares: int = 1

    name = "attention"

    def init(self, key):
        x = jnp.zeros((1, 1, self.width))
        heads = self._part(self.heads).init(key, x, lambda q, k, v: (v, None))["params"]
        return {"norm": norm().init(key, x)["params"], "heads": heads}

    def forward(self, params, x, side, key, decision=None):
        groups = self._groups(x)
        x = norm().apply({"params": params["norm"]}, x)
        constants = self._directions(groups, x, key) if decision is None else None, decision
        if groups == 1:
            y, decision = self._attend(params["heads"], x, constants, side=side, key=key)
        else:
            work = partial(self._attend, side=side, key=key)
            y, decision = chunked.over_heads(work, self._split(params["heads"], groups), x, constants)
        return self._dropped(y, key), decision

    def pull(self, params, x, side, key, decision, dy):
        groups = self._groups(x)
        if groups == 1:
            y, back = jax.vjp(lambda p, x: self.forward(p, x, side, key, decision)[0], params, x)
            return y, *back(dy), None
        x, back = jax.vjp(lambda p, x: norm().apply({"params": p}, x), params["norm"], x)
        heads, join = jax.vjp(partial(self._split, groups=groups), params["heads"])
        work, constants = partial(self._attend, side=side, key=key), (None, decision)
        y, dheads, dx = chunked.pull_over_heads(work, heads, x, constants, self._dropped(dy, key))
        dnorm, dx = back(dx)
        return self._dropped(y, key), {"norm": dnorm, "heads": join(dheads)[0]}, dx, None

    def through(self, params, x, attend):
        """The sublayer around another attention, all heads at once and without dropout; see `Heads`."""
        x = norm().apply({"params": params["norm"]}, x)
        return self._part(self.heads).apply({"params": params["heads"]}, x, attend)

    def _part(self, heads):
        return Heads(self.width, heads, self.head_width, self.setting.shared, self.dtype)

    def _attend(self, params, x, constants, *, side, key):
        directions, decision = constants

        def attend(q, k, v):
            chosen = self.setting.decide(q, directions) if decision is None else decision
            rest = {"causal": self.causal, "keep": side.real, "train": self.train, "decision": chosen}
            return self.setting.attend(q, k, v, jax.random.fold_in(key, 0), **rest), chosen

        return self._part(params["query"].shape[1]).apply({"params": params}, x, attend)

    def _dropped(self, y, key):
        return dropout(y, self.rate, jax.random.fold_in(key, 1), self.shared_dropout)

    def _groups(self, x):
        """Into how many groups the heads are divided for x [b,l,e]."""
        at_once = self.at_once
        if at_once is None:
            at_once = chunked.allowed(HEADS_BUDGET, x.shape[0], self.shares, x.shape[1] * self.head_width)
        return next(g for g in range(1, self.heads + 1) if self.heads % g == 0 and self.heads // g <= at_once)

    def directions(self, key, length):
        """What the setting draws for sequences of `length`, for this sublayer's key."""
        return self.setting.draw(jax.random.fold_in(key, 2), self.heads, length, self.head_width)

    def _directions(self, groups, x, key):
        drawn = self.directions(key, x.shape[1])
        if groups == 1:
            return drawn
        return jax.tree.map(lambda d: d.reshape(groups, -1, *d.shape[1:]), drawn)

    def _split(self, params, groups):
        """Parameters with a leading axis of groups."""
        axes = {"query": 1, "key": 1, "value": 1, "out": 0}

        def split(name, x):
            axis = axes[name]
            x = x.reshape(*x.shape[:axis], groups, -1, *x.shape[axis + 1 :])
            return jnp.moveaxis(x, axis, 0)

        return {name: split(name, x) for name, x in params.items()}


class Dense(nn.Module):
    """B activation(A LayerNorm(x) + a) + b, float32 [b,l,e]."""

    width: int
    hidden: int
    activation: str
    dtype: str

    @nn.compact
    def __call__(self, x):
        dense = partial(nn.Dense, dtype=self.dtype, kernel_init=nn.initializers.glorot_uniform())
        x = nn.LayerNorm(epsilon=1e-6, name="norm")(x)
        x = ACTIVATIONS[self.activation](dense(self.hidden, name="in")(x))
        return dense(self.width, name="out")(x).astype(jnp.float32)


@dataclass(frozen=True)
class FeedForward:
    """Dropout(Dense(x)), position by position; see `reversible` for the calls.

    most: positions of one sequence at a time; None for as many as `HIDDEN_BUDGET` allows where a
    batch is divided over `shares` devices.
    """

    width: int
    hidden: int
    activation: str = "relu"
    dtype: str = "float32"
    rate: float = 0.0
    shared_dropout: bool = False
    most: int | None = None
    shares: int = 1

    name = "feedforward"

    def init(self, key):
        return self._dense().init(key, jnp.zeros((1, 1, self.width)))["params"]

    def forward(self, params, x, side, key, decision=None):
        y = chunked.over_stretches(self._rows, self._most(x), params, x)
        return self._dropped(y, key), None

    def pull(self, params, x, side, key, decision, dy):
        dy = self._dropped(dy, key)
        y, dparams, dx = chunked.pull_over_stretches(self._rows, self._most(x), params, x, (), dy)
        return self._dropped(y, key), dparams, dx, None

    def _dense(self):
        return Dense(self.width, self.hidden, self.activation, self.dtype)

    def _rows(self, params, x, constants):
        return self._dense().apply({"params": params}, x)

    def _most(self, x):
        return self.most or chunked.allowed(HIDDEN_BUDGET, x.shape[0], self.shares, self.hidden)

    def _dropped(self, y, key):
        return dropout(y, self.rate, jax.random.fold_in(key, 1), self.shared_dropout)
