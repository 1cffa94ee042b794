"""The translation model: gradients, padding of the source, causality, size, smoothing."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reformer import LSH, Full, Seq2Seq
from reformer.translation import begin, step, translate

# Blocks of 4: attention really goes block by block. 3 layers: the streams change roles an odd number of times.
SMALL = Seq2Seq(
    vocabulary=13, length=16, layers=3, width=8, hidden=16, heads=2, attention=Full(shared=False, block=4),
    token_stddev=0.5, smoothing=0.1,
)  # fmt: skip
DROPPING = dataclasses.replace(
    SMALL,
    dropout=0.2,
    attention=Full(shared=False, block=4, dropout=0.2),
    heads_at_once=1,
    feedforward_chunk=4,
    loss_chunk=4,
)


def batch(b=3, m=9, length=11, seed=0):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(1, 13, (b, m)).astype(np.int32), rng.integers(1, 13, (b, length)).astype(np.int32)
    return {
        "encoder_input_tokens": source,
        "encoder_segment_ids": np.ones((b, m), np.int32),
        "decoder_target_tokens": target,
        "decoder_input_tokens": np.pad(target, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": np.ones((b, length), np.float32),
        "decoder_segment_ids": np.ones((b, length), np.int32),
    }


@partial(jax.jit, static_argnums=(0,))
def run(model, params, data):
    return model.apply(params, data)[0]


@partial(jax.jit, static_argnums=(0,))
def forward(model, params, data):
    """float32 [b,l,v]."""
    source = model.encode(params, data["encoder_input_tokens"], data["encoder_segment_ids"] > 0)
    streams = model.decode(params, data["decoder_input_tokens"], data["decoder_segment_ids"] > 0, source)
    return model.logits(params, streams)


@partial(jax.jit, static_argnums=(0,))
def gradient(model, params, data, key):
    def loss(params):
        scores, _ = model.apply(params, data, (), key, train=True)
        return (scores["nats"] * scores["weights"]).sum()

    return jax.value_and_grad(loss)(params)


@pytest.fixture(scope="module")
def params():
    return SMALL.init(jax.random.key(0))


def padded(data):
    """Padding in front, behind, and a whole source of it."""
    data["encoder_segment_ids"][0, [0, 1]] = 0
    data["encoder_segment_ids"][1, 7:] = 0
    data["encoder_segment_ids"][2] = 0
    return data


@pytest.mark.slow
def test_inverting_gives_the_gradient_of_plain_autodiff(params):
    data, key = padded(batch()), jax.random.key(5)
    plain = dataclasses.replace(DROPPING, backward="store", heads_at_once=None, feedforward_chunk=None, loss_chunk=None)
    compare(gradient(plain, params, data, key), gradient(DROPPING, params, data, key))


def compare(one, other):
    (loss1, grads1), (loss2, grads2) = one, other
    np.testing.assert_allclose(loss1, loss2, rtol=1e-6)
    difference = jax.tree.map(lambda a, b: ((a - b) ** 2).sum(), grads1, grads2)
    size = jax.tree.map(lambda a: (a**2).sum(), grads1)
    total = lambda tree: sum(map(float, jax.tree.leaves(tree))) ** 0.5  # noqa: E731
    assert total(difference) <= 1e-5 * total(size)
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(grads1))  # the encoder's too, through the sources


@pytest.mark.slow
def test_remat_and_single_streams(params):
    data, key = padded(batch()), jax.random.key(5)
    single = dataclasses.replace(DROPPING, residual="single")
    compare(
        gradient(single, params, data, key), gradient(dataclasses.replace(single, backward="remat"), params, data, key)
    )
    assert jax.tree.map(jnp.shape, single.init(jax.random.key(0))) == jax.tree.map(jnp.shape, params)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_content_of_the_sources_padding_never_reaches_the_scores(params, dtype):
    model = dataclasses.replace(SMALL, dtype=dtype)
    data = padded(batch())
    other = {name: x.copy() for name, x in data.items()}
    other["encoder_input_tokens"][data["encoder_segment_ids"] == 0] = 12
    one, two = run(model, params, data), run(model, params, other)
    np.testing.assert_array_equal(one["nats"], two["nats"])
    assert np.isfinite(one["nats"]).all()
    heard = {name: x.copy() for name, x in data.items()}
    heard["encoder_input_tokens"][0, 2] = 1 + data["encoder_input_tokens"][0, 2] % 12
    assert (
        np.abs(run(model, params, heard)["nats"] - one["nats"])[0].min() > 0
    )  # of what is no padding, everything does


def test_padding_gives_what_a_shorter_batch_gives(params):
    data = batch()
    cut = {name: x[:, :7] if name.startswith("encoder") else x for name, x in data.items()}
    data["encoder_segment_ids"][:, 7:] = 0
    np.testing.assert_allclose(run(SMALL, params, data)["nats"], run(SMALL, params, cut)["nats"], atol=1e-5)


def test_the_decoder_does_not_see_later_tokens_and_the_encoder_sees_all(params):
    data = batch()
    later = {name: x.copy() for name, x in data.items()}
    later["decoder_input_tokens"][:, 5:] = 3
    before, after = forward(SMALL, params, data), forward(SMALL, params, later)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.abs(before[:, 5:] - after[:, 5:]).max() > 0

    heard = {name: x.copy() for name, x in data.items()}
    heard["encoder_input_tokens"][:, -1] = 1 + data["encoder_input_tokens"][:, -1] % 12
    assert np.abs(before - forward(SMALL, params, heard)).max(-1).min() > 0


def test_size_is_that_of_the_transformer_with_pre_normalisation():
    def count(**settings):
        model = Seq2Seq(vocabulary=37_000, length=512, **settings)
        return sum(x.size for x in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))

    def derived(d, hidden, layers, tables, v=37_000):
        norm, attention, feedforward = 2 * d, 4 * d * d, 2 * d * hidden + d + hidden
        encoder = 2 * norm + attention + feedforward
        decoder = 3 * norm + 2 * attention + feedforward
        return layers * (encoder + decoder) + 2 * norm + tables * v * d + v  # last: the output's bias

    base = dict(width=512, hidden=2048, heads=8)
    assert count(**base, tie="all") == derived(512, 2048, 6, 1)
    assert count(**base, tie="embeddings") == derived(512, 2048, 6, 2)
    assert count(**base) == derived(512, 2048, 6, 3)
    assert count(width=1024, hidden=4096, heads=16) == derived(1024, 4096, 6, 3)
    # Vaswani et al. 2017, Table 3, base: 65 million, without biases of the output and with as many norms.
    assert abs(count(**base, tie="all") / 65e6 - 1) < 0.05
    for residual in ("single", "reversible"):
        assert count(**base, tie="all", residual=residual) == derived(512, 2048, 6, 1)
    assert count(**base, positions="sinusoid") == derived(512, 2048, 6, 3) + 2 * 512 * 512


def test_smoothing_is_of_the_training_loss_alone(params):
    data = batch()
    logits = np.asarray(forward(SMALL, params, data), np.float64)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    right = np.eye(13)[data["decoder_target_tokens"]]
    np.testing.assert_allclose(run(SMALL, params, data)["nats"], -(right * logp).sum(-1), atol=1e-5)
    trained = jax.jit(partial(SMALL.apply, train=True))(params, data)[0]["nats"]
    np.testing.assert_allclose(trained, -((0.9 * right + 0.1 / 12 * (1 - right)) * logp).sum(-1), atol=1e-5)


def test_tied_tables_are_one_and_scaled_where_they_are_read():
    model = dataclasses.replace(SMALL, tie="all")
    params = model.init(jax.random.key(0))
    assert not params["embedding"]["target"]
    assert "out" not in params["head"]
    table = params["embedding"]["source"]["tokens"]
    np.testing.assert_allclose(jnp.std(table), 0.5 / 8**0.5, rtol=0.2)  # and token_stddev where they are read
    scaled = {"tokens": 8**0.5 * table}
    same = {**params, "embedding": {"source": scaled, "target": scaled}, "head": {**params["head"], "out": table.T}}
    np.testing.assert_allclose(forward(model, params, batch()), forward(SMALL, same, batch()), atol=1e-5)


def test_wrong_use_is_explained(params):
    with pytest.raises(ValueError, match="keys of their own"):
        Seq2Seq(5, 8, attention=LSH())
    with pytest.raises(ValueError, match="did you mean 'embeddings'"):
        Seq2Seq(5, 8, tie="embedding")
    with pytest.raises(ValueError, match="needs residual 'reversible'"):
        Seq2Seq(5, 8, residual="single", backward="invert").encoder()
    with pytest.raises(ValueError, match="17 positions but the model has a table of 16"):
        run(SMALL, params, batch(m=17))


@pytest.mark.parametrize(
    "model",
    [
        SMALL,
        pytest.param(
            dataclasses.replace(SMALL, residual="single", positions="axial", tie="all"), marks=pytest.mark.slow
        ),
    ],
    ids=["reversible", "single"],
)
def test_steps_give_the_logits_of_the_whole(model):
    params = model.init(jax.random.key(1))
    data = padded(batch())
    real = data["encoder_segment_ids"] > 0
    cache = jax.jit(partial(begin, model), static_argnums=(3, 4))(params, data["encoder_input_tokens"], real, 2, 11)
    whole = np.asarray(forward(model, params, data))
    # What the encoder computed is in the cache: a step has no use for its parameters.
    rest = {name: p for name, p in params.items() if not name.startswith("encoder")}
    one = jax.jit(partial(step, model))
    for at in range(11):
        logits, cache = one(rest, cache, np.repeat(data["decoder_input_tokens"][:, at], 2))
        np.testing.assert_allclose(logits, np.repeat(whole[:, at], 2, axis=0), atol=2e-5)


def test_translations_have_the_probabilities_that_the_whole_forward_gives(params):
    data = padded(batch())
    real = data["encoder_segment_ids"] > 0
    found = translate(SMALL, params, data["encoder_input_tokens"], real, eos=4, beams=3, alpha=0.8, extra_length=2)
    assert found.tokens.shape == (3, 3, 11)
    for beam in range(3):
        tokens, lengths = np.asarray(found.tokens[:, beam]), np.asarray(found.lengths[:, beam])
        read = {**data, "decoder_input_tokens": np.pad(tokens, ((0, 0), (1, 0)))[:, :-1]}
        logp = np.asarray(jax.nn.log_softmax(forward(SMALL, params, read)))
        for row, length in enumerate(lengths):
            total = sum(logp[row, at, tokens[row, at]] for at in range(length))
            np.testing.assert_allclose(found.scores[row, beam], total / ((5 + length) / 6) ** 0.8, rtol=1e-4)
    with pytest.raises(ValueError, match="up to 17 tokens were asked for, but the model has 16"):
        begin(SMALL, params, data["encoder_input_tokens"], real, 1, 17)
