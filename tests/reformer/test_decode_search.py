"""Drawing and beam search, on a step function small enough to enumerate."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reformer import search
from reformer.search import Sampling

IDS, COUNT, EOS, FIRST = 3, 4, 0, 1

# Logits of the next token after each pair (token before the last, last token), for two sequences.
TABLE = np.random.default_rng(4).normal(size=(2, IDS, IDS, IDS)).astype(np.float32) * 2
AXIS = (0, 0, None)  # of the parts of a cache


def step(cache, tokens):
    """A model that remembers one token: the cache is (which sequence, the token before, the table)."""
    which, before, table = cache
    return table[which, before, tokens], (which, tokens, table)


def begin(table=TABLE, rows=2):
    return jnp.arange(rows) % 2, jnp.zeros(rows, jnp.int32), jnp.asarray(table)


def nats(tokens, which, table=TABLE):
    """Log-probability of tokens that follow FIRST, float64, without JAX."""
    total, before, last = 0.0, 0, FIRST
    for token in tokens:
        x = table[which, before, last].astype(np.float64)
        total += x[token] - np.log(np.exp(x).sum())
        before, last = last, token
    return total


def score(tokens, which, alpha, table=TABLE):
    return nats(tokens, which, table) / ((5 + len(tokens)) / 6) ** alpha


def beams_found(beams, alpha, table=TABLE, candidates=None):
    def run():
        cache = search.repeat(begin(table), beams, AXIS)
        return search.beam_search(step, cache, jnp.full(2, FIRST), EOS, COUNT, beams, alpha, AXIS, candidates)

    return jax.tree.map(np.asarray, jax.jit(run)())


def check(found, which, expected):
    """`expected`: [(score, tokens)], the best first; there must be no further hypotheses."""
    at = np.isfinite(found.scores[which])
    assert at.sum() == len(expected)
    assert at[: len(expected)].all()
    np.testing.assert_allclose(found.scores[which][at], [s for s, _ in expected], atol=1e-5)
    for tokens, length, (_, wanted) in zip(found.tokens[which], found.lengths[which], expected, strict=False):
        assert tuple(tokens[:length].tolist()) == wanted
        assert not tokens[length:].any()


@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_full_width_finds_what_enumeration_finds(alpha):
    beams = (IDS - 1) ** (COUNT - 1)  # as many as can live at once
    found = beams_found(beams, alpha)
    for which in range(2):
        words = [w for n in range(COUNT) for w in itertools.product((1, 2), repeat=n)]
        everything = sorted(((score((*w, EOS), which, alpha), (*w, EOS)) for w in words), reverse=True)
        check(found, which, everything[:beams])


def test_the_penalty_favours_length():
    assert search.penalty(1, 0.6) == 1
    np.testing.assert_allclose(search.penalty(jnp.array([7, 13]), 0.5), [2**0.5, 3**0.5], rtol=1e-6)
    short, long = (beams_found(8, alpha).lengths[:, 0] for alpha in (0.0, 1.5))
    assert (short <= long).all()
    assert (short < long).any()


def test_narrow_beams_against_a_search_with_lists():
    table = TABLE.copy()
    table[0, ..., EOS] -= 5  # the search settles later there
    found = beams_found(2, 0.6, table)
    for which in range(2):
        live, done = [()], []
        for _ in range(COUNT):
            done += [(score((*t, EOS), which, 0.6, table), (*t, EOS)) for t in live]
            live = sorted(((*t, i) for t in live for i in (1, 2)), key=lambda t: -nats(t, which, table))[:2]
        done = sorted(done, reverse=True)[:2]
        check(found, which, done)


def test_a_beam_ends_only_where_that_is_among_the_best_continuations():
    table = TABLE.copy()
    table[..., EOS] -= 2
    found = beams_found(2, 0.6, table, candidates=2)
    unlimited = beams_found(2, 0.6, table)
    for which in range(2):
        live, done = [()], []
        for _ in range(COUNT):
            grown = sorted(((*t, i) for t in live for i in range(IDS)), key=lambda t: -nats(t, which, table))
            done += [(score(t, which, 0.6, table), t) for t in grown[:2] if t[-1] == EOS]
            live = [t for t in grown if t[-1] != EOS][:2]
        done = sorted(done, reverse=True)[:2]
        check(found, which, done)
    assert (found.lengths[:, 0] >= unlimited.lengths[:, 0]).all()
    assert (found.lengths != unlimited.lengths).any()


def test_what_was_cut_off_comes_only_where_nothing_ended():
    table = TABLE.copy()
    table[0, ..., EOS] = -np.inf
    found = beams_found(2, 0.6, table)
    live = [()]
    for _ in range(COUNT):
        live = sorted(((*t, i) for t in live for i in (1, 2)), key=lambda t: -nats(t, 0, table))[:2]
    check(found, 0, [(score(t, 0, 0.6, table), t) for t in live])
    assert (found.tokens[1] == EOS).any(-1).all()


# ---- drawing ---------------------------------------------------------------------------------

LOGITS = np.array([[2.0, 0.5, -1.0, 1.0, 0.0, -3.0], [0.0, 3.0, 1.0, -2.0, 2.5, 1.5]], np.float32)


def distribution(row, temperature=1.0, top_k=None, top_p=1.0, ids=None):
    """float64, written from the definitions."""
    x = row.astype(np.float64) / temperature
    order = [i for i in np.argsort(-x) if ids is None or i < ids][:top_k]
    p = np.exp(x[order] - x[order].max())
    p /= p.sum()
    reached = np.flatnonzero(np.cumsum(p) >= top_p - 1e-12)
    last = reached[0] if len(reached) else len(p) - 1
    full = np.zeros(len(x))
    full[order[: last + 1]] = p[: last + 1] / p[: last + 1].sum()
    return full


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 1e-300},
        {"top_k": 2},
        {"top_k": 99},
        {"top_p": 0.6},
        {"top_p": 1e-6},
        {"ids": 3},
        {"temperature": 2.0, "top_k": 4, "top_p": 0.7, "ids": 5},
    ],
    ids=str,
)
def test_restricted_distributions(settings):
    p = jax.nn.softmax(Sampling(**settings).restrict(jnp.asarray(LOGITS)), axis=-1)
    np.testing.assert_allclose(p, [distribution(row, **settings) for row in LOGITS], atol=1e-6)


def test_draws_have_the_distribution_they_say():
    settings, n = {"temperature": 1.5, "top_k": 4, "top_p": 0.9}, 20_000
    keys = jax.random.split(jax.random.key(0), n)
    drawn = Sampling(**settings).draw(keys, jnp.broadcast_to(LOGITS[:1], (n, 6)))
    p = distribution(LOGITS[0], **settings)
    share = np.bincount(drawn, minlength=6) / n
    assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / n)).all()


def test_greedy_takes_the_most_likely_id_and_ends_with_the_mark():
    tokens = jnp.full(3, FIRST)
    greedy = Sampling(temperature=0)
    drawn = search.sample(step, begin(rows=3), tokens, jax.random.key(0), 6, greedy)
    ended = search.sample(step, begin(rows=3), tokens, jax.random.key(0), 6, greedy, eos=2)
    allowed = search.sample(step, begin(rows=3), tokens, jax.random.key(0), 6, Sampling(temperature=0, ids=2))
    assert (np.asarray(allowed) < 2).all()
    for row in range(3):
        before, last, expected = 0, FIRST, []
        for _ in range(6):
            before, last = last, int(TABLE[row % 2, before, last].argmax())
            expected.append(last)
        assert drawn[row].tolist() == expected
        end = expected.index(2) + 1 if 2 in expected else 6
        assert ended[row].tolist() == [*expected[:end], *[0] * (6 - end)]
    assert 2 in np.asarray(drawn), "the mark is never drawn: choose another table"


def test_a_row_is_drawn_alike_whatever_stands_beside_it():
    def run(rows, seed):
        return search.sample(step, begin(rows=rows), jnp.full(rows, FIRST), jax.random.key(seed), 8)

    four = np.asarray(run(4, 0))
    np.testing.assert_array_equal(run(2, 0), four[:2])
    assert (four[0] != four[2]).any()  # same distribution, another draw
    assert (run(2, 1) != four[:2]).any()


def test_wrong_settings_are_explained():
    with pytest.raises(ValueError, match="at least 0, 0 for greedy"):
        Sampling(temperature=-1.0)
    with pytest.raises(ValueError, match="top_p is 0"):
        Sampling(top_p=0.0)
    with pytest.raises(ValueError, match="top_k is 0"):
        Sampling(top_k=0)
    with pytest.raises(ValueError, match="alpha is -1"):
        search.beam_search(step, begin(), jnp.ones(2, jnp.int32), EOS, 3, 1, alpha=-1)
