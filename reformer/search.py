"""Choosing tokens one after the other: drawing them, and beam search.

Both work on any model, given as

    step(cache, tokens int32 [n]) -> (logits float32 [n,v], cache)

which reads one token in each of n rows and scores the next; the cache is whatever tree of arrays the
model keeps. `tokens` is what the rows read first: the last token of a prompt, or the mark a
sequence begins with. Everything is one compiled loop when called under `jax.jit`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from reformer import checks

NOTHING = -jnp.inf


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from the model's distribution.

    temperature: logits are divided by it; 0 takes the most likely id.
    top_k: only the k most likely ids, None for all.
    top_p: only the most likely ids that make up this probability, after temperature and top_k: the
        fewest whose sum reaches it (nucleus sampling, arXiv 1904.09751). 1 for all.
    ids: only ids below this one, None for all.

    Ids exactly as likely as the last one kept are kept too.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    ids: int | None = None

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature!r}; it must be a number of at least 0, 0 for greedy")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p!r}; it is a probability, 0 < top_p <= 1")
        for name in ("top_k", "ids"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))

    def restrict(self, logits):
        """logits [...,v] -> float32 logits of what is drawn from, -inf for ids that are out. Not for temperature 0."""
        logits = self._allowed(logits)
        # The largest becomes 0, and no temperature so small that float32 has only 0 for it, or the quotient is nan.
        logits = (logits - logits.max(-1, keepdims=True)) / max(self.temperature, 1e-30)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = jax.lax.top_k(logits, self.top_k)[0][..., -1:]
            logits = jnp.where(logits >= least, logits, NOTHING)
        if self.top_p < 1:
            ranked = jnp.sort(logits, axis=-1, descending=True)
            p = jax.nn.softmax(ranked, axis=-1)
            before = jnp.cumsum(p, axis=-1) - p
            least = jnp.where(before < self.top_p, ranked, jnp.inf).min(-1, keepdims=True)
            logits = jnp.where(logits >= least, logits, NOTHING)
        return logits

    def draw(self, keys, logits):
        """One id per row, int32 [n]: keys [n], logits [n,v]. A row's draw depends on nothing but its own."""
        if self.temperature == 0:
            return self._allowed(logits).argmax(-1).astype(jnp.int32)
        return jax.vmap(jax.random.categorical)(keys, self.restrict(logits)).astype(jnp.int32)

    def _allowed(self, logits):
        logits = logits.astype(jnp.float32)
        if self.ids is None:
            return logits
        out = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) >= self.ids
        return jnp.where(out, NOTHING, logits)


PLAIN = Sampling()


def sample(step, cache, tokens, key, count, sampling=PLAIN, eos=None):
    """Draws `count` tokens in every row: tokens int32 [n] -> int32 [n,count].

    A row that has drawn `eos` is over, and filled up with zeros; the loop ends with the last row.
    Row i's draws depend on `key` and i, not on the number of rows.
    """
    rows = jnp.arange(tokens.shape[0])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)

    def unfinished(state):
        at, _, _, over, _ = state
        return (at < count) & ~over.all()

    def draw(state):
        at, tokens, cache, over, drawn = state
        logits, cache = step(cache, tokens)
        tokens = sampling.draw(jax.vmap(jax.random.fold_in, (0, None))(keys, at), logits)
        tokens = jnp.where(over, 0, tokens)
        if eos is not None:
            over |= tokens == eos
        return at + 1, tokens, cache, over, drawn.at[:, at].set(tokens)

    over, drawn = jnp.zeros(rows.shape, bool), jnp.zeros((len(rows), count), jnp.int32)
    return jax.lax.while_loop(unfinished, draw, (0, tokens.astype(jnp.int32), cache, over, drawn))[-1]


# ---- beam search -----------------------------------------------------------------------------


class Found(NamedTuple):
    """Hypotheses of beam search, the best first."""

    tokens: jax.Array  # int32 [b,k,count], with the end mark, zeros behind it
    scores: jax.Array  # float32 [b,k] log-probability / penalty; -inf where there is no further hypothesis
    lengths: jax.Array  # int32 [b,k] tokens, the end mark included


def penalty(length, alpha):
    """What the log-probability of `length` tokens is divided by: ((5 + length) / 6)^alpha (Wu et al. 2016, Eq. 14)."""
    return ((5.0 + length) / 6.0) ** alpha


def beam_search(step, cache, tokens, eos, count, beams, alpha=0.6, axis=0, candidates=None):
    """The `beams` best continuations of at most `count` tokens found for each sequence -> `Found`.

    cache: of b x beams rows, those of one sequence next to each other; see `repeat`.
    tokens: int32 [b], what each sequence reads first. eos: the id that ends a hypothesis.
    alpha: see `penalty`; 0 compares plain log-probabilities.
    axis: where the rows stand in the leaves of the cache: a number, or a tree of numbers that the
        cache's structure refines, None for parts that belong to all rows alike.
    candidates: a beam may end only where that is among so many best continuations of its sequence in
        that step, 2 x beams in the usual searches; None: always. Without a limit a weak model's best
        hypothesis is the empty one: an unlikely end costs less than many words that are not sure.

    In each step every beam may end, and the `beams` best continuations that do not end live on.
    The search stops when no living beam can overtake the hypotheses found. Hypotheses
    cut off at `count` are given only for a sequence where none has ended.
    """
    checks.positive("beams", beams)
    if alpha < 0:
        raise ValueError(
            f"alpha is {alpha}; it must be at least 0 (0: no penalty, 0.6: as in the papers on translation)"
        )
    b, k = tokens.shape[0], beams
    rank = jax.vmap(lambda found, scores: jax.tree.map(lambda x: x[jax.lax.top_k(scores, k)[1]], found))

    def unsettled(state):
        at, _, _, live, done = state
        hope = live.scores.max(-1) / penalty(count, alpha)  # log-probabilities only fall, penalties only grow
        return (at < count) & (hope > done.scores.min(-1)).any()

    def extend(state):
        at, last, cache, live, done = state
        logits, cache = step(cache, last)
        scores = live.scores[..., None] + jax.nn.log_softmax(logits.astype(jnp.float32)).reshape(b, k, -1)
        ends = scores[:, :, eos]
        if candidates is not None and candidates < scores[0].size:
            least = jax.lax.top_k(scores.reshape(b, -1), candidates)[0][:, -1:]
            ends = jnp.where(ends >= least, ends, NOTHING)
        ended = Found(
            live.tokens.at[:, :, at].set(eos),
            ends / penalty(at + 1, alpha),
            jnp.full((b, k), at + 1, jnp.int32),
        )
        both = jax.tree.map(lambda x, y: jnp.concatenate([x, y], 1), done, ended)
        done = rank(both, both.scores)

        ids = scores.shape[-1]
        scores, best = jax.lax.top_k(scores.at[:, :, eos].set(NOTHING).reshape(b, k * ids), k)
        parent, last = best // ids, (best % ids).astype(jnp.int32)
        tokens = jnp.take_along_axis(live.tokens, parent[..., None], axis=1).at[:, :, at].set(last)
        live = Found(tokens, scores, live.lengths + 1)
        rows = (jnp.arange(b)[:, None] * k + parent).reshape(b * k)
        return at + 1, last.reshape(b * k), _rows(cache, axis, lambda x, a: jnp.take(x, rows, axis=a)), live, done

    nothing = jnp.zeros((b, k, count), jnp.int32), jnp.full((b, k), NOTHING), jnp.zeros((b, k), jnp.int32)
    live, done = Found(nothing[0], nothing[1].at[:, 0].set(0.0), nothing[2]), Found(*nothing)
    state = (0, jnp.repeat(tokens.astype(jnp.int32), k), cache, live, done)
    _, _, _, live, done = jax.lax.while_loop(unsettled, extend, state)

    cut = live._replace(scores=live.scores / penalty(count, alpha))
    ended = done.scores[:, 0] > NOTHING
    return jax.tree.map(lambda d, c: jnp.where(ended.reshape(b, *(1,) * (d.ndim - 1)), d, c), done, cut)


def repeat(cache, beams, axis=0):
    """The cache of b rows as one of b x beams rows; `axis` as in `beam_search`."""
    return _rows(cache, axis, lambda x, a: jnp.repeat(x, beams, axis=a))


def _rows(cache, axis, function):
    """`function(leaf, its axis of rows)` of every leaf that has one."""

    def part(a, tree):
        return tree if a is None else jax.tree.map(lambda x: function(x, a), tree)

    return jax.tree.map(part, axis, cache, is_leaf=lambda a: a is None)
