"""Stacks of layers: ordinary residuals, and reversible ones that store no activations (section 3).

A layer is a tuple of sublayers f. With one stream a sublayer is x <- x + f(x). With two it is

    (a, b) <- (b, a + f(b))

so that a layer of attention and feed-forward is y1 = x1 + Attention(x2), y2 = x2 + FeedForward(y1),
equation 9. What went in is found again from what came out, a = b' - f(a'): the backward pass needs
the last streams only, whatever the depth. It calls every f once more, for its value and its
gradients together (`pull`).

In float32 that costs the last bits: relative to what layers add, not to what was there, so a first
stream that is much smaller than later ones (tiny embeddings) is found again less exactly.

What chance decides must be the same both times. Keys are: one per sublayer, made of its number.
Bucket ids are not, because reconstructed activations differ in the last bits and could fall into
another bucket; they are kept (4 bytes per position, round and head).

A sublayer is a hashable setting with

    name                                                    of its part of a layer's parameters
    init(key) -> params
    forward(params, x, side, key, decision=None) -> (y, decision)
    pull(params, x, side, key, decision, dy) -> (y, dparams, dx, dsource)

where x [b,l,e] is a float32 stream, y [b,l,e] is float32, and `side` is a `Side`.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import checks
from reformer.swapping import fetch, park

RESIDUALS = ("single", "reversible")
BACKWARDS = ("store", "remat", "invert")


class Side(NamedTuple):
    """What every sublayer may look at beside its stream.

    real: bool [b,l], False for padding. source: float32 [b,m,e], what a decoder attends to, with
    its own mask bool [b,m]; None in a model without encoder.
    """

    real: jax.Array
    source: jax.Array | None = None
    source_real: jax.Array | None = None


@dataclass(frozen=True)
class Stack:
    """A stack of layers; `pattern` is one period of them and repeats over the depth.

    residual: 'single' or 'reversible' streams.
    backward: 'store' keeps what plain autodiff keeps; 'remat' keeps the streams between periods and
        computes the rest again; 'invert' keeps the last streams only, and needs two of them.
    """

    pattern: tuple[tuple, ...]
    residual: str = "reversible"
    backward: str = "invert"

    def __post_init__(self):
        checks.choice("residual", self.residual, RESIDUALS)
        checks.choice("backward", self.backward, BACKWARDS)
        if self.backward == "invert" and self.residual != "reversible":
            raise ValueError("backward 'invert' needs residual 'reversible'; with 'single' choose 'store' or 'remat'")

    def init(self, key, layers):
        """Parameters of `layers` layers: for each layer of the pattern a dictionary, stacked over its repeats."""
        repeats = layers // len(self.pattern)

        def one(layer, key):
            keys = jax.random.split(key, len(layer))
            return {sublayer.name: sublayer.init(k) for sublayer, k in zip(layer, keys, strict=True)}

        return tuple(
            jax.vmap(partial(one, layer))(jax.random.split(jax.random.fold_in(key, i), repeats))
            for i, layer in enumerate(self.pattern)
        )

    def begin(self, x):
        """The streams before the first layer."""
        return (x,) if self.residual == "single" else (x, x)

    def run(self, params, x, side, key):
        """x float32 [b,l,e] -> the streams after the last layer, a tuple of one or two float32 [b,l,e]."""
        streams = self.begin(x)
        if self.backward == "invert":
            return _inverting(self, params, streams, side, key)
        return _forward(self, params, streams, side, key)[0]

    def steps(self, index, layers, key):
        """(sublayer, its parameters, its key) of one period, in order; fetched if the host holds them."""
        layers = fetch(layers)
        names = [(i, sublayer) for i, layer in enumerate(self.pattern) for sublayer in layer]
        return [
            (sublayer, layers[i][sublayer.name], jax.random.fold_in(key, index * len(names) + at))
            for at, (i, sublayer) in enumerate(names)
        ]


def add(streams, y):
    """The streams after a sublayer whose value, f of the last one, is y."""
    return (streams[0] + y,) if len(streams) == 1 else (streams[1], streams[0] + y)


def _forward(stack, params, streams, side, key):
    """The last streams, and what every sublayer decided, stacked over periods."""

    def period(streams, inputs):
        decisions = []
        for sublayer, p, k in stack.steps(*inputs, key):
            y, decision = sublayer.forward(p, streams[-1], side, k)
            streams = add(streams, y)
            decisions.append(decision)
        return streams, tuple(decisions)

    if stack.backward == "remat":
        period = jax.checkpoint(period)
    return jax.lax.scan(period, streams, (_numbers(params), params))


def _numbers(params):
    """The numbers of the periods, int32 [repeats]."""
    return jnp.arange(jax.tree.leaves(params)[0].shape[0])


# ---- the backward pass that inverts --------------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _inverting(stack, params, streams, side, key):
    return _forward(stack, params, streams, side, key)[0]


def _inverting_forward(stack, params, streams, side, key):
    streams, decisions = _forward(stack, params, streams, side, key)
    return streams, (params, streams, decisions, side, key)


def _inverting_backward(stack, saved, dstreams):
    params, streams, decisions, side, key = saved

    def period(carry, inputs):
        (a, b), (da, db), dsource = carry
        index, layers, decided = inputs
        dlayers = [{} for _ in layers]
        homes = [i for i, layer in enumerate(stack.pattern) for _ in layer]
        steps = zip(homes, stack.steps(index, layers, key), decided, strict=True)
        for i, (sublayer, p, k), decision in reversed(list(steps)):
            y, dp, dx, ds = sublayer.pull(p, a, side, k, decision, db)
            (a, b), (da, db) = (b - y, a), (db, da + dx)
            dlayers[i][sublayer.name] = dp
            if ds is not None:
                dsource = dsource + ds
        return ((a, b), (da, db), dsource), park(tuple(dlayers), layers)

    dsource = None if side.source is None else jnp.zeros_like(side.source)
    carry = (streams, dstreams, dsource)
    (_, dstreams, dsource), dparams = jax.lax.scan(period, carry, (_numbers(params), params, decisions), reverse=True)
    return dparams, dstreams, Side(None, dsource, None), None


_inverting.defvjp(_inverting_forward, _inverting_backward)


def inverted(stack, params, streams, side, key, decisions):
    """What went in, found from what came out: the streams before the first layer, for measuring the error."""

    def period(streams, inputs):
        index, layers, decided = inputs
        a, b = streams
        for (sublayer, p, k), decision in reversed(list(zip(stack.steps(index, layers, key), decided, strict=True))):
            y, _ = sublayer.forward(p, a, side, k, decision)
            a, b = b - y, a
        return (a, b), None

    return jax.lax.scan(period, streams, (_numbers(params), params, decisions), reverse=True)[0]


def inversion_error(stack, params, x, side, key):
    """Largest difference between x and its reconstruction through all layers, over the root mean square of x."""
    streams, decisions = _forward(stack, params, (x, x), side, key)
    back = inverted(stack, params, streams, side, key, decisions)
    worst = jnp.maximum(*(jnp.abs(s - x).max() for s in back))
    return worst / jnp.sqrt(jnp.mean(x * x))
