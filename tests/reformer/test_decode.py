"""Decoding: token by token, what a forward pass over everything says; prompts of any length and padding."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import dense, draw, unit_keys

from reformer import LSH, Full, Local, Model, caches, hashing, search

LENGTH, PROMPT = 24, 13
BASE = Model(
    vocabulary=11, length=LENGTH, layers=4, width=16, hidden=32, heads=2, token_stddev=1.0, position_stddev=1.0
)
WIDE = {"rounds": 2, "chunk": 4, "before": 5, "after": 5}  # windows that reach everything
MODELS = {
    "shared full, narrow local": dataclasses.replace(
        BASE, attention=(Full(), Local(chunk=4, before=2)), positions="sinusoid", tie_output=True, dtype="float32"
    ),
    "plain full, shared local": dataclasses.replace(
        BASE, attention=(Full(shared=False), Local(chunk=4, shared=True, scale="paper")),
        residual="reversible", positions="axial", axial_grid=(5, 5), axial_widths=(4, 12),
    ),
    "lsh that sees all of a bucket, or all": dataclasses.replace(
        BASE, attention=(LSH(**WIDE, within_bucket=True), LSH(**WIDE), LSH(chunk=LENGTH, scale="paper")), layers=3,
        residual="reversible", merge="average",
    ),
}  # fmt: skip
KEY = jax.random.key(5)
TOKENS = np.random.default_rng(0).integers(0, 11, (2, LENGTH)).astype(np.int32)


def params_of(model):
    return model.init(jax.random.key(1))


@partial(jax.jit, static_argnums=0)
def forward(model, params, tokens):
    """Log-probabilities behind every input token, float32 [b,l,v]."""
    batch = {"decoder_input_tokens": tokens, "decoder_segment_ids": jnp.ones_like(tokens)}
    return jax.nn.log_softmax(model.logits(params, model.hidden_states(params, batch, KEY)))


@partial(jax.jit, static_argnums=0)
def steps(decoder, params, cache, tokens):
    """The same, one step after the other."""

    def step(cache, tokens):
        logits, cache = decoder.step(params, cache, tokens)
        return cache, logits

    return jax.nn.log_softmax(jax.lax.scan(step, cache, tokens.T)[1].swapaxes(0, 1))


@partial(jax.jit, static_argnums=0)
def prefill(decoder, params, tokens, real):
    return decoder.prefill(params, tokens, real, KEY)


@pytest.mark.parametrize("name", MODELS)
def test_steps_and_prompts_say_what_the_forward_pass_says(name):
    model = MODELS[name]
    params, decoder = params_of(model), model.decoder(LENGTH)
    expected = forward(model, params, TOKENS)
    alone = steps(decoder, params, decoder.start(2, KEY), TOKENS)
    np.testing.assert_allclose(alone, expected, atol=1e-4)

    # Row 0 has read 3 tokens with padding before, between and behind them, row 1 has read 13: more than a ring holds.
    prompt, real = np.full((2, PROMPT), 7, np.int32), np.zeros((2, PROMPT), bool)
    real[0, [2, 3, 8]], real[1] = True, True
    prompt[real] = np.concatenate([TOKENS[0, :3], TOKENS[1, :PROMPT]])
    cache = prefill(decoder, params, prompt, real)
    np.testing.assert_array_equal(cache.at, [3, PROMPT])
    rest = np.stack([np.roll(TOKENS[0], -3), np.roll(TOKENS[1], -PROMPT)])
    found = np.asarray(steps(decoder, params, cache, rest))
    for row, read in enumerate((3, PROMPT)):
        np.testing.assert_allclose(found[row, : LENGTH - read], expected[row, read:], atol=1e-4)
        assert np.isnan(found[row, LENGTH - read :]).all()  # behind the capacity nothing is made up


def test_a_prompt_within_one_chunk_is_read_like_what_follows():
    """Its tokens must not see each other across buckets, as those of short inputs do."""
    setting = LSH(rounds=1, chunk=8, before=2, after=2, within_bucket=True)
    model = dataclasses.replace(BASE, attention=setting, layers=2, positions="normal")
    params, decoder, read = params_of(model), model.decoder(LENGTH), 5
    cache = prefill(decoder, params, TOKENS[:, :read], None)
    found = steps(decoder, params, cache, TOKENS[:, read:])
    np.testing.assert_allclose(found, forward(model, params, TOKENS)[:, read:], atol=1e-4)


def test_greedy_generation_is_argmax_after_argmax():
    model = MODELS["plain full, shared local"]
    params, count = params_of(model), 7
    prompt, real = np.full((2, 5), 9, np.int32), np.array([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]], bool)
    prompt[real] = [3, 1, 4, 1, 5, 2, 6]
    drawn = model.generate(params, prompt, count, KEY, real=real, temperature=0.0)
    for row in range(2):
        inputs = [0, *prompt[row][real[row]].tolist()]
        for token in np.asarray(drawn[row]):
            padded = np.zeros((2, LENGTH), np.int32)
            padded[0, : len(inputs)] = inputs
            assert token == int(forward(model, params, padded)[0, len(inputs) - 1].argmax())
            inputs.append(int(token))
    nothing = np.zeros((2, 0), np.int32)
    twice = [model.generate(params, nothing, count, jax.random.key(seed)).tolist() for seed in (0, 0, 1)]
    assert twice[0] == twice[1] != twice[2]


def test_beams_of_the_model_have_the_scores_of_its_forward_pass():
    model = MODELS["lsh that sees all of a bucket, or all"]
    params, decoder, beams, eos, count = params_of(model), model.decoder(LENGTH), 3, 4, 6

    @jax.jit
    def run(params):
        cache, last = decoder.read(params, TOKENS[:, :5], key=KEY)
        cache = search.repeat(cache, beams, decoder.AXIS)
        return search.beam_search(partial(decoder.step, params), cache, last, eos, count, beams, 0.6, decoder.AXIS)

    found = run(params)
    assert np.isfinite(found.scores[:, 0]).all()
    assert (np.diff(found.scores, axis=1) <= 0).all()
    for row in range(2):
        length, padded = int(found.lengths[row, 0]), np.zeros((2, LENGTH), np.int32)
        padded[0, 1:6], padded[0, 6 : 6 + count] = TOKENS[row, :5], found.tokens[row, 0]
        best = forward(model, params, padded)[0]
        nats = sum(float(best[5 + i, found.tokens[row, 0, i]]) for i in range(length))
        np.testing.assert_allclose(found.scores[row, 0], nats / ((5 + length) / 6) ** 0.6, atol=1e-4)


# ---- LSH attention's rule, played with lists --------------------------------------------------------

RULES = {
    "recent ones fill up": LSH(rounds=2, chunk=2, buckets=4),
    "own bucket only": LSH(rounds=2, chunk=2, buckets=4, within_bucket=True),
}


@partial(jax.jit, static_argnums=(0, 1))
def looks(setting, first, q, v, directions):
    """Output of every position, the first ones kept at once and the others one after the other: [b,h,l,d]."""
    b, h, length, d = q.shape
    kept = caches.empty(setting, length, b, 3, h, d, "float32")
    ids = setting.decide(q, directions)
    begun = [x[:, :, :first] for x in (q, v)]
    kept = caches.fill(setting, kept, 1, begun[0], None, begun[1], ids[..., :first], jnp.full(b, first))

    def look(kept, at):
        one = [jax.lax.dynamic_slice_in_dim(x, at, 1, axis=2) for x in (q, v)]
        mine = jax.lax.dynamic_slice_in_dim(ids, at, 1, axis=3)
        y, kept = caches.look(setting, kept, 1, jnp.full(b, at), one[0], None, one[1], mine)
        return kept, y[:, :, 0]

    return jnp.moveaxis(jax.lax.scan(look, kept, jnp.arange(first, length))[1], 0, 2)


@pytest.mark.parametrize("name", RULES)
def test_candidates_are_those_of_the_rule(name):
    setting, length, first = RULES[name], 20, 3
    q, v = draw(2, 2, length, 8), draw(2, 2, length, 8, seed=1)
    directions = hashing.rotations(KEY, 2, setting.rounds, 8, setting.factors(length))
    ids = np.asarray(hashing.hash_vectors(q, directions, setting.factors(length)))
    most = caches.candidates(setting, length)
    assert most == 8  # 2 rounds x 2 chunks of 2

    legal = np.zeros((2, 2, length, length), bool)
    for row, head, i in np.ndindex(2, 2, length):
        met = [j for j in range(i) if (ids[row, head, :, i] == ids[row, head, :, j]).any()]
        others = [j for j in range(i) if j not in met and not setting.within_bucket]
        legal[row, head, i, (met[::-1] + others[::-1])[:most]] = True
    alone = ~legal.any(-1, keepdims=True)
    expected = np.where(alone, v, dense(q @ unit_keys(q).swapaxes(-1, -2), v, legal))
    found = looks(setting, first, q, v, directions)
    np.testing.assert_allclose(found, expected[:, :, first:], atol=1e-5)
    assert alone[:, :, first:].any() == setting.within_bucket
    assert (legal.sum(-1) == most).any(), "no query ever has too many candidates: choose another length"


def test_blocks_of_a_long_cache_are_one_softmax(monkeypatch):
    setting, length = Full(shared=False), 22
    q, k, v = (draw(2, 2, length, 8, seed=seed) for seed in range(3))
    monkeypatch.setattr(caches, "BLOCK", 8)
    assert caches.slots(setting, length) == 24
    kept = caches.empty(setting, length, 2, 1, 2, 8, "float32")
    kept = caches.fill(setting, kept, 0, q, k, v, None, jnp.array([22, 22]))
    at = np.array([21, 4])
    mine = [np.stack([x[row, :, at[row]] for row in range(2)])[:, :, None] for x in (q, k, v)]
    found, _ = jax.jit(partial(caches.look, setting))(kept, 0, jnp.asarray(at), *mine, None)
    for row in range(2):
        seen = np.arange(length)[None, None] <= at[row]
        logits = mine[0][row] @ k[row].swapaxes(-1, -2) / 8**0.5
        np.testing.assert_allclose(found[row], dense(logits, v[row], np.broadcast_to(seen, logits.shape)), atol=1e-5)


# ---- cost ------------------------------------------------------------------------------------------


def equations(jaxpr):
    """All equations of a jaxpr, those inside loops and calls too."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def traced(attention, layers=2):
    model = dataclasses.replace(BASE, length=4096, layers=layers, attention=attention)
    decoder, token = model.decoder(4096), jnp.zeros(1, jnp.int32)
    params, cache = jax.eval_shape(model.init, jax.random.key(0)), jax.eval_shape(lambda: decoder.start(1))
    return list(equations(jax.make_jaxpr(decoder.step)(params, cache, token).jaxpr))


def test_the_program_of_a_step_does_not_grow_with_depth():
    assert len(traced((LSH(), Local()), layers=2)) == len(traced((LSH(), Local()), layers=12))


@pytest.mark.parametrize(
    ("attention", "longest"), [(LSH(rounds=2, chunk=32), 128), (Local(chunk=64), 128), (Full(), 1024)]
)
def test_what_a_step_multiplies_is_bounded(attention, longest):
    products = [e for e in traced(attention) if e.primitive.name == "dot_general"]
    assert len(products) > 5
    sides = [max(x.aval.shape) for e in products for x in e.invars]
    assert max(sides) == longest  # candidates, a ring, or a block; and no projection of more than one token


def test_wrong_use_is_explained():
    with pytest.raises(ValueError, match="causal=True"):
        dataclasses.replace(BASE, causal=False).decoder(8)
    with pytest.raises(ValueError, match="25 tokens, but the model has 24"):
        BASE.decoder(25)
    with pytest.raises(ValueError, match="5 tokens do not fit into a cache for 4"):
        BASE.decoder(4).prefill(None, np.zeros((1, 5), np.int32))
