"""Drawing tokens one after the other from what a model says."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from memorizing import checks


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits.

    temperature: logits are divided by it; 0 takes the likeliest id.
    top_k: only the k likeliest ids, None for all.
    top_p: only the fewest likeliest ids whose probability, after temperature and top_k, reaches this
        (nucleus sampling, arXiv 1904.09751); 1 for all.
    ids: only ids below this one, None for all.

    Ids exactly as likely as the last that is kept are kept as well.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    ids: int | None = None

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature!r}; it must be at least 0 (0: the likeliest token)")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p!r}; it is a probability, 0 < top_p <= 1")
        for name in ("top_k", "ids"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))

    def restrict(self, logits):
        """logits [n,v] -> float32 logits that are drawn from, -inf where an id is out. temperature is not 0."""
        x = self._possible(logits) / self.temperature
        ranked = jnp.sort(x, axis=-1, descending=True)
        least = jnp.full_like(ranked[:, :1], -jnp.inf)
        if self.top_k is not None and self.top_k < x.shape[1]:
            least = ranked[:, self.top_k - 1 : self.top_k]
            ranked = jnp.where(ranked >= least, ranked, -jnp.inf)
        if self.top_p < 1:
            p = jax.nn.softmax(ranked)
            likelier = jnp.cumsum(p, axis=-1) - p  # probability of all ids before this one
            kept = jnp.sum(likelier < self.top_p, axis=-1, keepdims=True)
            least = jnp.maximum(least, jnp.take_along_axis(ranked, kept - 1, axis=-1))
        return jnp.where(x >= least, x, -jnp.inf)

    def draw(self, keys, logits):
        """An id for every row, int32 [n]: keys [n], logits [n,v]; rows do not depend on each other."""
        if self.temperature == 0:
            return self._possible(logits).argmax(-1).astype(jnp.int32)
        return jax.vmap(jax.random.categorical)(keys, self.restrict(logits)).astype(jnp.int32)

    def _possible(self, logits):
        x = logits.astype(jnp.float32)
        return x if self.ids is None else jnp.where(jnp.arange(x.shape[1])[None] < self.ids, x, -jnp.inf)


def sample(step, cache, tokens, key, count, sampling, eos=None):
    """Goes on by `count` tokens in every row: tokens int32 [n], to be read next -> int32 [n,count].

    step(cache, tokens) -> (logits [n,v] of the token behind these, cache).
    A row is over when it has drawn `eos`; zeros follow, and the loop ends with the last row. What row i
    draws depends on `key`, i and its own logits.
    """
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(tokens.shape[0]))

    def unfinished(state):
        n, _, _, over, _ = state
        return (n < count) & ~over.all()

    def one(state):
        n, tokens, cache, over, drawn = state
        logits, cache = step(cache, tokens)
        tokens = sampling.draw(jax.vmap(jax.random.fold_in, (0, None))(keys, n), logits)
        tokens = jnp.where(over, 0, tokens)
        over = over if eos is None else over | (tokens == eos)
        return n + 1, tokens, cache, over, drawn.at[:, n].set(tokens)

    rows = tokens.shape[0]
    begin = (0, tokens.astype(jnp.int32), cache, jnp.zeros(rows, bool), jnp.zeros((rows, count), jnp.int32))
    return jax.lax.while_loop(unfinished, one, begin)[-1]
