"""Decoding: one token at a time, each read once.

A step costs the projections of one token and its look at what is kept (`caches`), not a pass over
everything before it. A prompt is read by one ordinary forward pass that fills the caches. Rows
need not have the same length: each has its own position, and its result is that of the row alone.

    decoder = model.decoder(capacity)
    cache, last = decoder.read(params, prompt)
    logits, cache = decoder.step(params, cache, last)      # of the token behind the prompt

or all of it in one compiled loop: `model.generate`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from reformer import caches, checks, search
from reformer.lsh import LSH
from reformer.model import Model
from reformer.reversible import Side, add
from reformer.swapping import fetch
from reformer.transformer import Embedding


class Cache(NamedTuple):
    """All that a step needs to know of the tokens before."""

    at: jax.Array  # int32 [b], tokens read
    kept: tuple  # `caches.Kept` of each place in the model's attention pattern
    directions: tuple  # float32 [n,h,r,d,x] of each place, None where nothing is hashed; the same at every step


@dataclass(frozen=True)
class Decoder:
    """A causal `model` that reads at most `capacity` tokens, the 0 of the first input included.

    LSH attention hashes as a forward pass over `capacity` tokens does, with directions that are drawn
    once: those that `Model.apply` would draw from the same key.
    """

    model: Model
    capacity: int

    AXIS: ClassVar = Cache._make((0, 0, None))  # where rows stand in a cache, for `search.beam_search`

    def __post_init__(self):
        checks.positive("capacity", self.capacity)
        if not self.model.causal:
            raise ValueError(
                "an encoder (causal=False) sees what follows and cannot be decoded; build it with causal=True"
            )
        if self.capacity > self.model.length:
            raise ValueError(
                f"prompt and continuation have {self.capacity} tokens, but the model has {self.model.length}"
                " positions; ask for fewer tokens, or give a shorter prompt"
            )

    @property
    def stack(self):
        """The layers, with as many buckets for any length as for `capacity`."""
        pattern = tuple(
            replace(setting, buckets=setting.factors(self.capacity)) if isinstance(setting, LSH) else setting
            for setting in self.model.pattern
        )
        return replace(self.model, attention=pattern).stack()

    def start(self, rows, key=None):
        """The cache of `rows` rows that have read nothing. key: of the hash directions, as in `Model.apply`."""
        m, stack = self.model, self.stack
        repeats = m.layers // len(m.pattern)
        width = m.head_width or m.width // m.heads
        key = jax.random.fold_in(jax.random.key(0) if key is None else key, 1)

        def directions(index):
            nothing = tuple({sublayer.name: None for sublayer in layer} for layer in stack.pattern)
            steps = stack.steps(index, nothing, key)
            return tuple(s.directions(k, self.capacity) for s, _, k in steps if s.name == "attention")

        kept = tuple(caches.empty(s, self.capacity, rows, repeats, m.heads, width, m.dtype) for s in m.pattern)
        return Cache(jnp.zeros(rows, jnp.int32), kept, jax.vmap(directions)(jnp.arange(repeats)))

    def prefill(self, params, tokens, real=None, key=None):
        """Reads tokens int32 [b,l] at once, as model inputs -> Cache.

        real: bool [b,l], False for padding, wherever it stands; positions count real tokens only.
        """
        cache = self.start(tokens.shape[0], key)
        tokens, count = _compacted(tokens, real)
        if not tokens.shape[1]:
            return cache
        if tokens.shape[1] > self.capacity:
            raise ValueError(f"{tokens.shape[1]} tokens do not fit into a cache for {self.capacity}")
        side = Side(_first(tokens.shape[1], count))

        def attention(setting, kept, layer, directions, q, k, v):
            buckets = setting.decide(q, directions)
            y = setting.attend(q, k, v, causal=True, keep=side.real, decision=buckets)
            return y, caches.fill(setting, kept, layer, q, k, v, buckets, count)

        x = Embedding(self.model).apply({"params": params["embedding"]}, tokens)
        _, kept = self._through(params, cache, x, side, attention)
        return cache._replace(at=count, kept=kept)

    def read(self, params, prompt, real=None, key=None):
        """Reads a prompt int32 [b,l], of any length -> (Cache, int32 [b] the token to be read next).

        The model's inputs are a 0 and the prompt. All but the last are read here; the last one is what
        the first `step` is to read. real: see `prefill`.
        """
        prompt, count = _compacted(prompt, real)
        inputs = jnp.pad(prompt, ((0, 0), (1, 0)))
        last = jnp.take_along_axis(inputs, count[:, None], axis=1)[:, 0]
        return self.prefill(params, inputs[:, :-1], _first(prompt.shape[1], count), key), last

    def step(self, params, cache, tokens):
        """Reads one token per row, int32 [b] -> (logits float32 [b,v] of the next one, Cache).

        Beyond `capacity` the logits are nan: nothing can be raised inside a compiled loop.
        """

        def attention(setting, kept, layer, directions, q, k, v):
            return caches.look(setting, kept, layer, cache.at, q, k, v, setting.decide(q, directions))

        x = Embedding(self.model).apply({"params": params["embedding"]}, tokens[:, None], cache.at[:, None])
        streams, kept = self._through(params, cache, x, Side(jnp.ones(x.shape[:2], bool)), attention)
        logits = jnp.where((cache.at < self.capacity)[:, None], self.model.logits(params, streams)[:, 0], jnp.nan)
        return logits, Cache(cache.at + 1, kept, cache.directions)

    def _through(self, params, cache, x, side, attention):
        """The stack around `attention(setting, kept, layer, directions, q, k, v) -> (y, kept)`."""
        stack, unused = self.stack, jax.random.key(0)

        def period(carry, inputs):
            streams, kept = carry
            index, layers, directions = inputs
            for i, layer in enumerate(stack.pattern):
                for sublayer in layer:
                    p = layers[i][sublayer.name]
                    if sublayer.name == "attention":
                        attend = partial(attention, sublayer.setting, kept[i], index, directions[i])
                        y, new = sublayer.through(p, streams[-1], attend)
                        kept = (*kept[:i], new, *kept[i + 1 :])
                    else:
                        y, _ = sublayer.forward(p, streams[-1], side, unused)
                    streams = add(streams, y)
            return (streams, kept), None

        repeats = self.model.layers // len(stack.pattern)
        inputs = jnp.arange(repeats, dtype=jnp.int32), params["layers"], cache.directions
        return jax.lax.scan(period, (stack.begin(x), cache.kept), inputs)[0]


@partial(jax.jit, static_argnames=("model", "count", "sampling", "eos"))
def generate(model, params, prompt, count, key, sampling=search.PLAIN, real=None, eos=None):
    """Continuations of prompts: int32 [b,l] -> int32 [b,count]; see `search.sample`.

    key: of the draws, and of the hash directions. real: bool [b,l], False for padding.
    """
    params = fetch(params)  # all at once: every token reads all layers
    decoder = Decoder(model, prompt.shape[1] + count)
    cache, last = decoder.read(params, prompt, real, key)
    step = partial(decoder.step, params)
    return search.sample(step, cache, last, jax.random.fold_in(key, 2), count, sampling, eos)


def _first(length, count):
    """The first `count` int32 [b] positions of each row: bool [b,length]."""
    return jnp.arange(length)[None] < count[:, None]


def _compacted(tokens, real):
    """Tokens [b,l] with the real ones first in their order, and how many there are, int32 [b]."""
    tokens = tokens.astype(jnp.int32)
    if real is None:
        return tokens, jnp.full(tokens.shape[:1], tokens.shape[1], jnp.int32)
    order = jnp.argsort(~real, axis=1, stable=True)
    return jnp.take_along_axis(tokens, order, axis=1), real.sum(1, dtype=jnp.int32)
