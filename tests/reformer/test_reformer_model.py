"""The language model: scores, keys, parameters that serve several attentions."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reformer import LSH, Full, Local, Model
from reformer.positions import sinusoids
from reformer.reversible import Side

SMALL = Model(vocabulary=11, length=24, width=16, hidden=32, heads=2)
HASHED = dataclasses.replace(SMALL, attention=LSH(rounds=2, chunk=4))


def batch(b=4, length=24, seed=0):
    tokens = np.random.default_rng(seed).integers(1, 11, (b, length)).astype(np.int32)
    return {
        "decoder_target_tokens": tokens,
        "decoder_input_tokens": np.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": np.ones((b, length), np.float32),
        "decoder_segment_ids": np.ones((b, length), np.int32),
    }


@partial(jax.jit, static_argnums=(0, 4))
def run(model, params, data, key=None, train=False):
    """Scores, compiled once per model."""
    return model.apply(params, data, model.start(len(data)), key, train=train)[0]


@pytest.fixture(scope="module")
def params():
    return SMALL.init(jax.random.key(0), batch())


def test_scores_are_the_cross_entropy_of_the_logits(params):
    data = batch()
    data["decoder_loss_weights"][:, :5] = 0
    scores = run(SMALL, params, data)
    forward = jax.jit(lambda params: SMALL.logits(params, SMALL.hidden_states(params, data)))
    logits = np.asarray(forward(params), np.float64)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    target = data["decoder_target_tokens"]
    nats = -np.log(np.take_along_axis(p, target[..., None], -1)[..., 0])
    np.testing.assert_allclose(scores["nats"], nats, atol=1e-5)
    np.testing.assert_array_equal(scores["correct"], p.argmax(-1) == target)
    np.testing.assert_array_equal(scores["weights"], data["decoder_loss_weights"])
    assert {x.dtype for x in scores.values()} == {np.dtype(np.float32)}


def test_equal_settings_are_one_model():
    twin = dataclasses.replace(HASHED, attention=LSH(rounds=2, chunk=4))
    assert twin == HASHED
    assert hash(twin) == hash(HASHED)
    assert hash(Model(5, 8, layers=2, attention=[Local(), LSH(buckets=[4, 2])]))


def test_one_set_of_parameters_serves_full_and_any_number_of_rounds(params):
    data = batch()
    shapes = jax.tree.map(jnp.shape, params)
    for attention in (LSH(rounds=1), LSH(rounds=8), Local(shared=True), Full()):
        model = dataclasses.replace(SMALL, attention=attention)
        made = jax.eval_shape(lambda key, m=model: m.init(key, None), jax.random.key(0))
        assert jax.tree.map(lambda x: x.shape, made) == shapes
    # With windows that reach everything the result is that of full attention.
    wide = dataclasses.replace(SMALL, attention=LSH(rounds=2, chunk=4, before=5, after=5))
    exact = run(SMALL, params, data)["nats"]
    assert np.abs(run(HASHED, params, data)["nats"] - exact).max() > 1e-4
    np.testing.assert_allclose(run(wide, params, data)["nats"], exact, atol=1e-4)


def test_rotations_come_from_the_key_and_not_from_the_batch(params):
    data, key = batch(), jax.random.key(7)
    scores = run(HASHED, params, data, key)["nats"]
    np.testing.assert_array_equal(scores, run(HASHED, params, data, key)["nats"])
    assert np.abs(scores - run(HASHED, params, data, jax.random.key(8))["nats"]).max() > 0
    np.testing.assert_array_equal(run(HASHED, params, data)["nats"], run(HASHED, params, data)["nats"])
    half = {name: x[2:] for name, x in data.items()}
    np.testing.assert_allclose(run(HASHED, params, half, key)["nats"], scores[2:], atol=1e-5)


def test_dropout_only_in_training(params):
    model = dataclasses.replace(SMALL, dropout=0.5, attention=Full(dropout=0.5))
    data, key = batch(), jax.random.key(1)
    calm = run(model, params, data, key)["nats"]
    np.testing.assert_array_equal(calm, run(SMALL, params, data)["nats"])
    assert np.abs(run(model, params, data, key, train=True)["nats"] - calm).max() > 0.01


def test_exact_attention_does_not_see_later_tokens(params):
    data = batch()
    later = {name: x.copy() for name, x in data.items()}
    later["decoder_input_tokens"][:, 13:] = 3
    before, after = run(SMALL, params, data)["nats"], run(SMALL, params, later)["nats"]
    np.testing.assert_array_equal(before[:, :13], after[:, :13])
    assert np.abs(before[:, 13:] - after[:, 13:]).max() > 0


@pytest.mark.parametrize("model", [SMALL, HASHED], ids=["full", "lsh"])
def test_content_of_padding_does_not_reach_real_tokens(model, params):
    data = batch()
    data["decoder_segment_ids"][0, [0, 1]] = 0
    data["decoder_segment_ids"][1, 17:] = 0
    data["decoder_segment_ids"][2] = 0
    other = {name: x.copy() for name, x in data.items()}
    real = data["decoder_segment_ids"] > 0
    other["decoder_input_tokens"][~real] = 7
    one, two = run(model, params, data)["nats"], run(model, params, other)["nats"]
    np.testing.assert_allclose(np.asarray(one)[real], np.asarray(two)[real], atol=1e-6)
    assert np.isfinite(two).all()


def test_layers_are_scanned_and_patterns_repeat():
    pattern = (Local(chunk=8), Full(scale="paper"))
    model = dataclasses.replace(SMALL, layers=4, attention=pattern, tie_output=True)
    params = model.init(jax.random.key(0), None)
    data, key = batch(), jax.random.key(3)
    x = params["embedding"]["tokens"][data["decoder_input_tokens"]] + params["embedding"]["positions"][None]
    side = Side(data["decoder_segment_ids"] > 0)
    for i in range(4):
        layer = jax.tree.map(lambda x, i=i: x[i // 2], params["layers"][i % 2])
        for sublayer in model.stack().pattern[i % 2]:
            x = x + jax.jit(sublayer.forward)(layer[sublayer.name], x, side, key)[0]
    (scanned,) = jax.jit(model.hidden_states)(params, data, key)
    np.testing.assert_allclose(scanned, x, atol=1e-5)
    assert "key" in params["layers"][0]["attention"]["heads"]
    assert "key" not in params["layers"][1]["attention"]["heads"]
    assert "out" not in params["head"]


@pytest.mark.slow
def test_bfloat16_keeps_float32_parameters_and_gradients(params):
    model = dataclasses.replace(HASHED, dtype="bfloat16")
    data = batch()

    def loss(params):
        return model.apply(params, data)[0]["nats"].mean()

    value, grads = jax.jit(jax.value_and_grad(loss))(params)
    assert all(x.dtype == jnp.float32 and np.isfinite(x).all() for x in jax.tree.leaves(grads))
    assert np.isfinite(value)
    exact = run(SMALL, params, data)["nats"]  # hashing could put rounded vectors into other buckets
    close = run(dataclasses.replace(SMALL, dtype="bfloat16"), params, data)["nats"]
    assert np.abs(close - exact).mean() < 0.02
    made = jax.eval_shape(model.init, jax.random.key(0))
    assert {x.dtype for x in jax.tree.leaves(made)} == {np.dtype(np.float32)}


def test_shorter_batches_use_the_first_positions(params):
    data = batch()
    short = {name: x[:, :9] for name, x in data.items()}
    np.testing.assert_allclose(run(SMALL, params, short)["nats"], run(SMALL, params, data)["nats"][:, :9], atol=1e-5)


def test_sinusoid_table():
    table = np.asarray(sinusoids(50, 6))
    for position, pair in np.ndindex(50, 3):
        angle = position / 10_000 ** (2 * pair / 6)
        np.testing.assert_allclose(table[position, 2 * pair : 2 * pair + 2], [np.sin(angle), np.cos(angle)], atol=1e-5)
    model = dataclasses.replace(SMALL, positions="sinusoid", position_stddev=0.1)
    made = model.init(jax.random.key(0))["embedding"]["positions"]
    np.testing.assert_allclose(made, 0.1 * 2**0.5 * sinusoids(24, 16), atol=1e-6)


def test_wrong_use_is_explained(params):
    with pytest.raises(ValueError, match="25 positions but the model has a table of 24"):
        SMALL.apply(params, batch(length=25))
    with pytest.raises(ValueError, match="not a multiple of heads"):
        Model(5, 8, width=10, heads=3)
    with pytest.raises(ValueError, match="did you mean 'sinusoid'"):
        Model(5, 8, positions="sinusoids")
    with pytest.raises(ValueError, match="whole number of times"):
        Model(5, 8, layers=3, attention=(Full(), Local()))
    with pytest.raises(ValueError, match="dtype is 'float16'"):
        Model(5, 8, dtype="float16")


def test_ids_that_are_quantities_begin_alike():
    """Alike in proportion to their nearness, and the head no larger than Glorot's."""
    model = Model(vocabulary=64, length=8, width=32, hidden=8, heads=2, tokens="sinusoid", token_stddev=0.5)
    params = model.init(jax.random.key(0))
    table, head = np.float64(params["embedding"]["tokens"]), np.float64(params["head"]["out"])
    np.testing.assert_allclose((table**2).mean(), 0.25, rtol=1e-5)
    np.testing.assert_allclose((head**2).mean(), 2 / (32 + 64), rtol=1e-5)
    for rows in (table, head.T):
        apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
        means = [np.diagonal(apart, distance).mean() for distance in (1, 2, 4)]
        assert means[0] < means[1] < means[2]
        assert means[0] < 0.5 * apart[np.triu_indices(64, 16)].mean()
