"""Decoding: a document goes on token by token, with caches and memory that are read and grow.

    decoder = model.decoder()
    cache, last = decoder.read(params, prompt)
    logits, cache = decoder.step(params, cache, last)      # of the token behind the prompt

or all of it in one compiled loop: `model.generate`. Nothing is computed twice: a step is one token
through the layers, which looks at the keys and values that are kept.

The numbers are those of `Model.apply` on the whole document, segment by segment. For local attention a
token is a segment of length 1: with a cache every token sees the W before it, wherever segments begin;
without one, those of its own segment. The memory keeps to segments of `model.segment` tokens, counted
from the document's first: one is written when the next begins, and until then nobody retrieves it.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from memorizing import attention, ring, sampling
from memorizing.layers import Layer
from memorizing.model import DTYPES, Model


class Cache(NamedTuple):
    """All that a step needs to know of the document before it; rows are at places of their own.

    Runs of layers come before rows, so that a scan over layers takes and leaves them as they are.
    """

    at: jax.Array  # int32 [b], tokens of the document that were read
    local: tuple  # for each run of layers keys and values, each [n,b,h,W,d], of the W tokens before
    real: jax.Array  # bool [b,W], which of these may be looked at
    rings: tuple  # one ring.Ring for each memory layer
    waiting: tuple  # for each memory layer keys and values, each [b,h,l,d], of the segment that is being read


@dataclass(frozen=True)
class Decoder:
    """Reads what a `model` has been trained on in segments of `model.segment` tokens."""

    model: Model

    @property
    def window(self):
        """W, tokens before a token that it may see at most."""
        return self.model.cache or self.model.segment - 1

    def start(self, rows):
        """The cache of `rows` documents of which nothing was read."""
        m = self.model
        pair = lambda *shape: tuple(jnp.zeros((*shape, m.head_width), m.number) for _ in range(2))  # noqa: E731
        store = partial(ring.empty, rows, m.heads, m.memory, m.head_width, DTYPES[m.memory_dtype])
        rings = tuple(store() for _, remembers in m.runs if remembers)
        return Cache(
            at=jnp.zeros(rows, jnp.int32),
            local=tuple(pair(n, rows, m.heads, self.window) for n, _ in m.runs),
            real=jnp.full((rows, self.window), self._null),
            rings=rings,
            waiting=tuple(pair(rows, m.heads, m.segment) for _ in rings),
        )

    def prefill(self, params, tokens):
        """Reads the beginning of documents, int32 [b,t] as model inputs -> Cache."""
        segment, cache = self.model.segment, self.start(tokens.shape[0])
        whole = tokens.shape[1] // segment
        if whole:
            segments = tokens[:, : whole * segment].reshape(-1, whole, segment).swapaxes(0, 1)
            cache, _ = jax.lax.scan(lambda cache, x: (self._extend(params, cache, x)[1], None), cache, segments)
        rest = tokens[:, whole * segment :]
        return self._extend(params, cache, rest)[1] if rest.shape[1] else cache

    def read(self, params, prompt, begin=0):
        """Reads a prompt int32 [b,t] -> (Cache, int32 [b] the token to be read next).

        A model's inputs are `begin` and then the document's tokens; with None they are these alone (a task
        with predict_first off). The last of them is left to the first `step`.
        Raises ValueError if that leaves nothing to read.
        """
        prompt = jnp.asarray(prompt, jnp.int32)
        if begin is not None:
            prompt = jnp.pad(prompt, ((0, 0), (1, 0)), constant_values=begin)
        if not prompt.shape[1]:
            raise ValueError("the prompt is empty and begin is None, so there is no token to begin with; give one")
        return self.prefill(params, prompt[:, :-1]), prompt[:, -1]

    def step(self, params, cache, tokens, start=None):
        """Reads one token per row, int32 [b] -> (logits float32 [b,v] of the next one, Cache).

        start: bool [b], True where the token is the first of another document: that row forgets.
        """
        x, cache = self._extend(params, cache, tokens[:, None], start)
        x = nn.RMSNorm(epsilon=1e-6).apply({"params": {"scale": params["norm"]}}, x)
        return self.model.logits(params, x)[:, 0], cache

    @property
    def _null(self):
        """Whether what was never read may be looked at, as zero keys; only caches know that setting."""
        return bool(self.model.cache) and self.model.null_keys

    def _extend(self, params, cache, tokens, start=None):
        """Reads tokens int32 [b,c], of which none but the first begins a segment -> (last layer [b,c,e], Cache)."""
        m = self.model
        start = jnp.zeros(tokens.shape[:1], bool) if start is None else start
        at = jnp.where(start, 0, cache.at)
        begins = at % m.segment == 0
        forgets = start if m.cache else begins
        rings = self._remember(cache, start, begins & (at > 0))
        x, real = params["embedding"][tokens], jnp.ones(tokens.shape, bool)
        local, waiting = [], []
        held = zip(rings, cache.waiting, strict=True)
        for (_, remembers), stack, kept in zip(m.runs, params["layers"], cache.local, strict=True):
            memories, segment = next(held) if remembers else (None, ())

            def layer(x, inputs, remembers=remembers, memories=memories):
                layer, kept = inputs
                past = attention.forget(attention.Past(*kept, cache.real), forgets, self._null)
                unused = jax.random.key(0)  # of dropout
                module = Layer(m, remembers)
                x, k, v, _ = module.apply({"params": layer}, x, real, past, memories, unused, False)
                return x, (attention.advance(past, k, v, real), (k, v) if remembers else ())

            if remembers:  # no scan, see Model.hidden_states
                x, (past, pairs) = layer(x, jax.tree.map(lambda x: x[0], (stack, kept)))
                past = jax.tree.map(lambda x: x[None], past)
                waiting.append(tuple(_put(old, new, at % m.segment) for old, new in zip(segment, pairs, strict=True)))
            else:
                x, (past, _) = jax.lax.scan(layer, x, (stack, kept))
            local.append((past.keys, past.values))
        return x, Cache(at + tokens.shape[1], tuple(local), past.real[0], rings, tuple(waiting))

    def _remember(self, cache, start, full):
        """The memories: empty where a document begins, with the waiting segment where that is full [b]."""
        rings = tuple(ring.reset(one, start) for one in cache.rings)
        real = jnp.broadcast_to(full[:, None], (full.shape[0], self.model.segment))

        def write(_, rings):
            return tuple(ring.write(one, *pair, real) for one, pair in zip(rings, cache.waiting, strict=True))

        # A loop of one turn or none: it works in place, where lax.cond would copy the memories at every token.
        return jax.lax.fori_loop(0, full.any().astype(jnp.int32), write, rings)


def _put(old, new, place):
    """old [b,h,l,d] with new [b,h,c,d] from place [b] on."""
    put = lambda old, new, place: jax.lax.dynamic_update_slice_in_dim(old, new, place, axis=1)  # noqa: E731
    return jax.vmap(put)(old, new.astype(old.dtype), place)


@partial(jax.jit, static_argnames=("model", "count", "settings", "eos", "begin"))
def generate(model, params, prompt, count, key, settings, eos=None, begin=0):
    """Continuations of prompts: int32 [b,t] -> int32 [b,count]; see `sampling.sample` and `Decoder.read`."""
    decoder = Decoder(model)
    cache, last = decoder.read(params, prompt, begin)
    return sampling.sample(partial(decoder.step, params), cache, last, key, count, settings, eos)
