"""Translating with a trained `Seq2Seq`: the source is encoded once, then target tokens come one by one.

What does not change while a sentence is written is computed before its first token: the encoder's
output, and every decoder layer's keys and values of it. A step adds one row to the keys and values
of each layer's self-attention. All beams of a sentence read the same source, so to cross-attention
they are several queries of one sentence, and the source is never copied.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import checks
from reformer.cross import look_up
from reformer.reversible import add
from reformer.search import beam_search
from reformer.sublayers import join
from reformer.swapping import fetch
from reformer.transformer import Embedding


class Cache(NamedTuple):
    """What a step needs of the steps before, and of the source; n layers, rows = b x beams, T positions at most."""

    keys: jax.Array  # [n,rows,h,T,d] of self-attention
    values: jax.Array  # [n,rows,h,T,d]
    at: jax.Array  # int32 [], the position that is read next
    source_keys: jax.Array  # [n,b,h,m,d] of cross-attention
    source_values: jax.Array  # [n,b,h,m,d]
    source_real: jax.Array  # bool [b,m]


# Where the rows of beam search stand; the source belongs to a sentence, whatever its beams are.
ROWS = Cache._make([1, 1, None, None, None, None])


def begin(model, params, tokens, real, beams, count):
    """The `Cache` before the first of `count` tokens: source tokens int32 [b,m], real bool [b,m]."""
    if count > model.length:
        raise ValueError(
            f"translations of up to {count} tokens were asked for, but the model has {model.length} positions;"
            " shorten the source or extra_length, or build the model with a larger length"
        )
    source, real = model.encode(params, tokens, real)
    _, cross, _ = model.decoder().pattern[0]
    (layers,) = params["decoder"]
    keys, values = jax.vmap(cross.keys_values, (0, None))(layers[cross.name], source)
    empty = jnp.zeros((model.layers, tokens.shape[0] * beams, cross.heads, count, cross.head_width), keys.dtype)
    return Cache(empty, empty, jnp.zeros((), jnp.int32), keys, values, real)


def step(model, params, cache, tokens):
    """Reads one token per row, int32 [rows] -> logits of the next, float32 [rows,v], and the cache.

    Row i belongs to sentence i // beams. The encoder's parameters are not needed.
    """
    attention, cross, feedforward = model.decoder().pattern[0]
    (layers,) = params["decoder"]
    at = jnp.full((tokens.shape[0], 1), cache.at)
    x = Embedding(model).apply({"params": model.embedding(params, "target")}, tokens[:, None], at)
    heard = cache.source_real[:, None, None]
    past = (jnp.arange(cache.keys.shape[3]) <= cache.at)[None, None, None]
    sentences, key = heard.shape[0], jax.random.key(0)  # nothing is drawn

    def look_back(keys, values, index, q, k, v):
        keys = jax.lax.dynamic_update_slice(keys, k[None], (index, 0, 0, cache.at, 0))
        values = jax.lax.dynamic_update_slice(values, v[None], (index, 0, 0, cache.at, 0))
        return look_up(q, keys[index], values[index], past), (keys, values)

    def listen(p, x, keys, values):
        q = cross.queries(p, x.reshape(sentences, -1, model.width))
        return join(p["heads"]["out"], look_up(q, keys, values, heard), model.dtype).reshape(x.shape)

    def layer(carry, inputs):
        streams, keys, values = carry
        index, p, *source = inputs
        y, (keys, values) = attention.through(p[attention.name], streams[-1], partial(look_back, keys, values, index))
        streams = add(streams, y)
        streams = add(streams, listen(p[cross.name], streams[-1], *source))
        streams = add(streams, feedforward.forward(p[feedforward.name], streams[-1], None, key)[0])
        return (streams, keys, values), None

    inputs = jnp.arange(model.layers), layers, cache.source_keys, cache.source_values
    (streams, keys, values), _ = jax.lax.scan(layer, (model.decoder().begin(x), cache.keys, cache.values), inputs)
    return model.logits(params, streams)[:, 0], cache._replace(keys=keys, values=values, at=cache.at + 1)


@partial(jax.jit, static_argnums=0, static_argnames=("eos", "beams", "alpha", "extra_length"))
def translate(model, params, tokens, real, *, eos=1, beams=4, alpha=0.6, extra_length=50):
    """The best translations that beam search finds: source tokens int32 [b,m], real bool [b,m] -> `search.Found`.

    beams, alpha: see `search.beam_search`. A translation has at most m + extra_length tokens, and no
    more than the model has positions.
    """
    checks.positive("extra_length", extra_length, least=0)
    params = fetch(params)  # all at once: every token reads all layers
    count = min(tokens.shape[1] + extra_length, model.length)
    cache = begin(model, params, tokens, real, beams, count)
    first = jnp.zeros(tokens.shape[0], jnp.int32)  # what every target begins with, as in training
    return beam_search(partial(step, model, params), cache, first, eos, count, beams, alpha, ROWS, 2 * beams)
