"""Decoding against the forward pass over whole documents, and drawing against NumPy."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memorizing import Model
from memorizing.sampling import Sampling, sample

V, L = 11, 8
SMALL = Model(
    V, layers=3, width=16, hidden=24, heads=2, head_width=4, memory=16, segment=L, memory_layers=(2,), neighbours=4,
    cache=L, memory_dtype="float32",
)  # fmt: skip
SETTINGS = {
    "paper": {},
    "official": dict(strict=True, null_keys=True, bias="local", store_padding=True),
    "joint, long cache": dict(combination="joint", memory_layers=(1, 3), neighbours=3, cache=2 * L),
    "no cache": dict(cache=0, memory=24),
    "plain": dict(memory=0, cache=0, normalise=False, bias="nowhere"),
}
# Two slots' documents, in tokens: memories of 16 and 24 overflow, documents end and begin inside a segment.
LENGTHS = ((45, 3), (11, 30, 7))


def stirred(model):
    """Parameters in which gates, biases and scales are not where they begin."""
    rng = np.random.default_rng(0)

    def stir(path, x):
        kind = {"bias": lambda: rng.normal(size=x.shape), "gate": lambda: rng.normal(size=x.shape)}
        kind["scale"] = lambda: x * (2.0 if "projections" in jax.tree_util.keystr(path) else 1.0)
        return jnp.asarray(kind.get(path[-1].key, lambda: x)(), jnp.float32)

    params = model.init(jax.random.key(0))
    layers = jax.tree_util.tree_map_with_path(stir, params["layers"])
    # A smaller embedding, or greedy text repeats its last token: input and output share the table.
    return {**params, "layers": layers, "embedding": params["embedding"] * 0.2}


@pytest.fixture(scope="module")
def params():
    return stirred(SMALL)


def documents(slot):
    return [np.random.default_rng([slot, n]).integers(1, V, length) for n, length in enumerate(LENGTHS[slot])]


def forward(model, params):
    """Nats of every token of each slot's documents: the model on padded segments."""
    segments = [[], []]
    for slot, ready in enumerate(segments):
        for document in documents(slot):
            inputs = np.append(0, document[:-1])
            for at in range(0, len(document), L):
                ready.append((inputs[at : at + L], document[at : at + L], at == 0))
    steps = max(map(len, segments))
    apply, state, nats = jax.jit(model.apply), model.start(2), [[], []]
    for n in range(steps):
        inputs, targets, real, start = (np.zeros((2, *shape), np.int32) for shape in ((L,), (L,), (L,), ()))
        for slot, ready in enumerate(segments):
            if n < len(ready):
                size = len(ready[n][0])
                inputs[slot, :size], targets[slot, :size], start[slot] = ready[n]
                real[slot, :size] = 1
        batch = dict(decoder_input_tokens=inputs, decoder_target_tokens=targets, decoder_segment_ids=real,
                     decoder_loss_weights=real, document_start=start)  # fmt: skip
        scores, state = apply(params, batch, state)
        for slot in range(2):
            nats[slot].extend(np.asarray(scores["nats"])[slot, real[slot] > 0])
    return nats


def stepped(model, params):
    """The same, one token after the other, rows at places of their own."""
    inputs, starts = (np.zeros((2, 48), np.int32) for _ in range(2))
    for slot in range(2):
        tokens = [np.append(0, document[:-1]) for document in documents(slot)]
        inputs[slot], starts[slot, np.cumsum([0, *LENGTHS[slot]])[:-1]] = np.concatenate(tokens), 1
    decoder = model.decoder()

    @jax.jit
    def run(params):
        one = lambda cache, x: decoder.step(params, cache, x[0], x[1] > 0)[::-1]  # noqa: E731
        return jax.lax.scan(one, decoder.start(2), (inputs.T, starts.T))[1]

    scores = jax.nn.log_softmax(run(params)).swapaxes(0, 1)
    return [-np.asarray(scores)[slot, np.arange(48), np.concatenate(documents(slot))] for slot in range(2)]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_step_is_that_of_the_forward_pass(name):
    model = dataclasses.replace(SMALL, **SETTINGS[name])
    params = stirred(model)
    for got, wanted in zip(stepped(model, params), forward(model, params), strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-5)


def test_a_prompt_that_is_read_at_once_leaves_what_steps_leave(params):
    """Three whole segments and a part of a fourth; the ring holds two."""
    decoder, tokens = SMALL.decoder(), jnp.asarray(documents(0)[0][None, :29], jnp.int32)
    at_once = jax.jit(decoder.prefill)(params, tokens)
    step = jax.jit(decoder.step)
    cache = decoder.start(1)
    for token in tokens.T:
        _, cache = step(params, cache, token)
    for a, b in zip(jax.tree.leaves(at_once), jax.tree.leaves(cache), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert at_once.at == 29
    assert at_once.rings[0].written == 24
    with pytest.raises(ValueError, match="prompt is empty"):
        decoder.read(params, np.zeros((1, 0)), begin=None)


def test_greedy_text_is_what_the_forward_pass_finds_likeliest(params):
    prompt = np.stack([documents(0)[0][:13], documents(1)[1][:13]])
    drawn = np.asarray(SMALL.generate(params, prompt, 9, jax.random.key(0), temperature=0.0, ids=9))
    whole = np.concatenate([prompt, drawn], axis=1)
    inputs = np.pad(whole, ((0, 0), (1, 2)))
    state, nats = SMALL.start(2), []
    states = jax.jit(SMALL.hidden_states)
    for n in range(3):
        batch = {
            "decoder_input_tokens": inputs[:, n * L : (n + 1) * L],
            "decoder_segment_ids": np.ones((2, L), np.int32),
            "document_start": np.full(2, n == 0),
        }
        x, state, _ = states(params, batch, state)
        nats.append(SMALL.logits(params, x)[..., :9])
    likeliest = np.concatenate(nats, axis=1).argmax(-1)
    np.testing.assert_array_equal(drawn, likeliest[:, 13:22])
    assert len(np.unique(drawn)) > 2


def kept(logits, top_k, top_p):
    """Ids that may be drawn, by the definitions: one row, in float64."""
    order = np.argsort(-logits, kind="stable")
    least = logits[order[min(top_k or len(logits), len(logits)) - 1]]
    p = np.where(logits >= least, np.exp(logits - logits.max()), 0)
    p /= p.sum()
    total, least_p = 0.0, 0.0
    for one in order:
        total, least_p = total + p[one], p[one]
        if total >= top_p:
            break
    return (p > 0) & (p >= least_p)


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature"),
    [(None, 1.0, 0.5), (3, 1.0, 2.0), (None, 0.6, 1.0), (4, 0.7, 0.7), (99, 0.01, 1.0)],
)
def test_what_is_drawn_from(top_k, top_p, temperature):
    logits = np.random.default_rng(0).normal(size=(4, V)).astype(np.float32)
    logits[0, :6] = 1.5  # of equal ids all are kept
    left = np.asarray(Sampling(temperature, top_k, top_p).restrict(logits))
    wanted = np.stack([kept(row.astype(np.float64) / temperature, top_k, top_p) for row in logits])
    np.testing.assert_array_equal(np.isfinite(left), wanted)
    np.testing.assert_allclose(left[wanted], (logits / temperature)[wanted], rtol=1e-6)


def test_draws_follow_the_distribution_and_depend_on_row_and_key():
    p = np.array([0.5, 0.3, 0.2])
    logits = jnp.log(jnp.tile(jnp.asarray(p), (4000, 1)))
    step = lambda cache, tokens: (cache, cache)  # noqa: E731
    drawn = partial(jax.jit(sample, static_argnums=(0, 4, 5, 6)), step, logits, jnp.zeros(4000, jnp.int32))
    first = np.asarray(drawn(jax.random.key(0), 2, Sampling()))
    share = np.stack([(first == one).mean(0) for one in range(3)])
    np.testing.assert_allclose(share, np.tile(p[:, None], (1, 2)), atol=0.03)
    assert (first[:, 0] != first[:, 1]).mean() > 0.5
    over = np.asarray(sample(step, logits[:7], jnp.zeros(7, jnp.int32), jax.random.key(0), 2, Sampling(), eos=1))
    np.testing.assert_array_equal(over[:, 0], first[:7, 0])
    np.testing.assert_array_equal(over[:, 1], np.where(first[:7, 0] == 1, 0, first[:7, 1]))
    assert 0 < (first[:7, 0] == 1).sum() < 7
    assert (np.asarray(drawn(jax.random.key(1), 2, Sampling())) != first).any()


@pytest.mark.parametrize("wrong", [dict(top_p=0.0), dict(temperature=-1.0), dict(top_k=0), dict(ids=0)])
def test_wrong_settings_are_explained(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
        Sampling(**wrong)
