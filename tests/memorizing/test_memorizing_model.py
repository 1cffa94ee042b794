"""The Memorizing Transformer against NumPy, and its limits against each other."""

import copy
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from memorizing_oracle import Oracle

from memorizing import Model, Search, adapt
from memorizing.model import bytes_of_state, measures

V, B, L = 11, 3, 8
SMALL = Model(
    V, layers=3, width=16, hidden=24, heads=2, head_width=4, memory=16, segment=8, memory_layers=(2,), neighbours=4,
    cache=8, memory_dtype="float32",
)  # fmt: skip


def documents(seed=0, segments=6):
    """Batches of three slots: slot 1 begins a document at segment 2, after padding; slot 2 at every third."""
    rng, out = np.random.default_rng(seed), []
    for n in range(segments):
        real = np.ones((B, L), np.int32)
        if n == 1:
            real[1, 3:] = 0
        tokens = rng.integers(1, V, (B, L)).astype(np.int32) * real
        out.append(
            {
                "decoder_target_tokens": tokens,
                "decoder_input_tokens": np.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
                "decoder_loss_weights": real.astype(np.float32),
                "decoder_segment_ids": real,
                "document_start": np.array([n == 0, n in (0, 2), n % 3 == 0], np.int32),
            }
        )
    return out


@partial(jax.jit, static_argnums=(0, 5, 6))
def step(model, params, batch, state, key=None, train=False, inspect=False):
    return model.apply(params, batch, state, key, train=train, inspect=inspect)


def run(model, params, batches, state=None):
    """Nats of all batches, and the last state."""
    state = model.start(B) if state is None else state
    nats = []
    for batch in batches:
        scores, state = step(model, params, batch, state)
        nats.append(np.asarray(scores["nats"]))
    return np.array(nats), state


def lively(model, seed=0):
    """Parameters in which scales, biases and gates are not where they begin."""
    params, rng = model.init(jax.random.key(seed)), np.random.default_rng(seed)

    def stir(path, x):
        name = path[-1].key
        if name in ("bias", "gate"):
            return jnp.asarray(rng.normal(size=x.shape), jnp.float32)
        return x * (-3.0 if jax.tree_util.keystr(path).endswith("['projections']['scale']") else 1.0)

    return {**params, "layers": jax.tree_util.tree_map_with_path(stir, params["layers"])}


@pytest.fixture(scope="module")
def params():
    return lively(SMALL)


SETTINGS = {
    "paper": {},
    "official": dict(strict=True, null_keys=True, bias="local", store_padding=True),
    "joint": dict(combination="joint", memory_layers=(1, 2, 3), neighbours=3),
    "no cache": dict(cache=0, memory=24, remat=True),
    "plain": dict(memory=0, normalise=False, bias="nowhere"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_token_is_that_of_the_oracle(name):
    model = dataclasses.replace(SMALL, **SETTINGS[name])
    params = lively(model)
    batches, oracle = documents(), Oracle(model, params, B)
    nats, _ = run(model, params, batches)
    for got, batch in zip(nats, batches, strict=True):
        real = batch["decoder_segment_ids"] > 0
        np.testing.assert_allclose(got[real], oracle.step(batch)[real], atol=2e-4)


def test_closed_gates_make_the_baseline_without_memory(params):
    closed = jax.tree_util.tree_map_with_path(
        lambda path, x: jnp.full_like(x, -jnp.inf) if path[-1].key == "gate" else x, params["layers"]
    )
    plain = dataclasses.replace(SMALL, memory=0)
    shared = adapt.convert(params, SMALL, plain)
    with_memory, _ = run(SMALL, {**params, "layers": closed}, documents())
    without, _ = run(plain, shared, documents())
    np.testing.assert_allclose(with_memory, without, atol=2e-6)
    open_gate, _ = run(SMALL, params, documents())
    assert np.abs(open_gate[1:] - without[1:]).max() > 0.01


def test_the_whole_history_in_memory_is_long_attention():
    short = Model(
        V, layers=1, width=16, hidden=24, heads=2, head_width=4, memory=24, segment=8, memory_layers=(1,),
        neighbours=24, combination="joint", bias="nowhere", memory_dtype="float32",
    )  # fmt: skip
    params = lively(short)
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, V, (B, 4 * L)).astype(np.int32)
    long = {
        "decoder_target_tokens": tokens,
        "decoder_input_tokens": np.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": np.ones(tokens.shape, np.float32),
        "decoder_segment_ids": np.ones(tokens.shape, np.int32),
        "document_start": np.ones(B, np.int32),
    }
    cut = [{k: x[:, n * L : (n + 1) * L] if x.ndim == 2 else x * (n == 0) for k, x in long.items()} for n in range(4)]
    in_pieces, _ = run(short, params, cut)
    plain = dataclasses.replace(short, memory=0)
    at_once, _ = run(plain, adapt.convert(params, short, plain), [long])
    np.testing.assert_allclose(np.concatenate(list(in_pieces), axis=1), at_once[0], atol=1e-5)


def test_a_document_start_concerns_its_slot_alone(params):
    batches = documents()
    _, state = run(SMALL, params, batches[:3])
    quiet = {**batches[3], "document_start": np.zeros(B, np.int32)}
    one = {**quiet, "document_start": np.array([0, 1, 0], np.int32)}
    before, kept = step(SMALL, params, quiet, state)
    after, reset = step(SMALL, params, one, state)
    for a, b in zip(jax.tree.leaves((before, kept)), jax.tree.leaves((after, reset)), strict=True):
        np.testing.assert_array_equal(np.asarray(a)[[0, 2]], np.asarray(b)[[0, 2]])
    fresh, _ = step(SMALL, params, one, SMALL.start(B))
    np.testing.assert_array_equal(after["nats"][1], fresh["nats"][1])
    assert np.abs(before["nats"][1] - fresh["nats"][1]).max() > 0.01
    np.testing.assert_array_equal(kept.rings[0].written, [3 * L, L, 3 * L])  # and one segment waits
    np.testing.assert_array_equal(reset.rings[0].written, [3 * L, 0, 3 * L])


def test_a_segment_is_read_before_it_is_written(params):
    batches = documents()
    _, state = run(SMALL, params, batches[:2])
    _, next_state, (look,) = step(SMALL, params, batches[2], state, inspect=True)
    other = {**batches[2], "decoder_input_tokens": batches[2]["decoder_input_tokens"].copy()}
    other["decoder_input_tokens"][:, 4:] = 3
    _, _, (changed,) = step(SMALL, params, other, state, inspect=True)
    np.testing.assert_array_equal(look.index[:, :, :4], changed.index[:, :, :4])
    np.testing.assert_array_equal(look.share[:, :, :4], changed.share[:, :, :4])
    assert (np.asarray(look.real[1:]) == [False] * 4).sum() == 4 * L * 2  # slot 1 begins here and finds nothing
    assert (np.asarray(look.age[0]) >= np.arange(L)[None, :, None]).all()
    # What this segment wrote is found by the next.
    _, _, (then,) = step(
        SMALL, params, {**batches[3], "document_start": np.zeros(B, np.int32)}, next_state, inspect=True
    )
    assert np.asarray(then.real[1]).all()


def test_no_token_sees_a_later_one(params):
    batches = documents()
    _, state = run(SMALL, params, batches[:1])
    later = {**batches[1], "decoder_input_tokens": batches[1]["decoder_input_tokens"].copy()}
    later["decoder_input_tokens"][:, 5:] = 2
    one, two = (step(SMALL, params, batch, state)[0]["nats"] for batch in (batches[1], later))
    np.testing.assert_array_equal(one[:, :5], two[:, :5])
    assert np.abs(one[:, 5:] - two[:, 5:]).max() > 0


def test_gradients_reach_everything_but_what_is_stored(params):
    batches = documents()
    _, state = run(SMALL, params, batches[:2])

    def loss(model, params, keys, values):
        rings = (state.rings[0]._replace(keys=keys, values=values),)
        scores, _ = model.apply(params, batches[1], state._replace(rings=rings))
        return scores["nats"].sum()

    arguments = (params, state.rings[0].keys, state.rings[0].values)
    grads, *stored = jax.jit(jax.grad(partial(loss, SMALL), argnums=(0, 1, 2)))(*arguments)
    assert all((np.asarray(x) == 0).all() for x in stored)
    assert all(np.abs(x).max() > 1e-6 for x in jax.tree.leaves(grads))
    remat = dataclasses.replace(SMALL, remat=True)
    again = jax.jit(jax.grad(partial(loss, remat)))(*arguments)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), grads, again)


@pytest.mark.parametrize("name", ["paper", "joint"])
def test_gradients_are_the_slopes_of_the_oracle(name):
    """Every kind of parameter along a direction, by differences in float64, with what was stored held fast."""
    model = dataclasses.replace(SMALL, **SETTINGS[name])
    params, (*before, batch) = lively(model), documents()[:4]
    _, state = run(model, params, before)
    oracle = Oracle(model, params, B)
    for one in before:
        oracle.step(one)
    weights = batch["decoder_loss_weights"]

    def loss(params):
        return jnp.sum(model.apply(params, batch, state)[0]["nats"] * weights)

    slopes = Oracle(model, jax.jit(jax.grad(loss))(params), B).layers
    rng = np.random.default_rng(0)
    for kind in sorted({kind for layer in slopes for kind in layer}):
        ways = [rng.normal(size=layer[kind].shape) if kind in layer else None for layer in slopes]
        wanted = sum(np.sum(layer[kind] * way) for layer, way in zip(slopes, ways, strict=True) if way is not None)

        def moved(step, kind=kind, ways=ways):
            other = copy.deepcopy(oracle)
            for layer, way in zip(other.layers, ways, strict=True):
                if way is not None:
                    layer[kind] = layer[kind] + step * way
            return np.sum(other.step(batch) * weights)

        np.testing.assert_allclose((moved(1e-6) - moved(-1e-6)) / 2e-6, wanted, rtol=2e-3, atol=2e-3, err_msg=kind)


def test_more_padding_and_other_slots_change_no_token(params):
    batches = documents()
    turned = [{k: x[[2, 0, 1]] for k, x in batch.items()} for batch in batches]
    np.testing.assert_allclose(run(SMALL, params, turned)[0], run(SMALL, params, batches)[0][:, [2, 0, 1]], atol=1e-5)
    empty = {k: np.zeros_like(x) for k, x in batches[0].items()}
    nats, state = run(SMALL, params, [*batches[:2], empty, empty])
    assert np.isfinite(nats).all()
    assert state.rings[0].written.tolist() == [2 * L, L + 3, 2 * L]


def test_layers_that_find_approximately_still_find_the_best(params):
    model = dataclasses.replace(SMALL, search=Search("buckets", buckets=4, block=8))
    batches = documents()
    _, state = run(SMALL, params, batches[:3])
    _, _, (exact,) = step(SMALL, params, batches[4], state, inspect=True)
    scores, _, (look,) = step(model, params, batches[4], state, inspect=True)
    np.testing.assert_array_equal(look.index[..., 0], exact.index[..., 0])
    assert (np.asarray(exact.recall) == 1).all()
    assert 0.5 < look.recall.mean() < 1
    figures = measures((look,), scores["weights"])
    np.testing.assert_allclose(figures["memory1_recall"], look.recall.mean(), atol=1e-6)
    gate = params["layers"][1]["gate"][0]
    np.testing.assert_allclose(figures["memory1_share"], jax.nn.sigmoid(gate).mean(), atol=1e-6)
    assert figures["memory1_filled"] == 1
    assert 8 < figures["memory1_age"] < 24


def test_dropout_only_in_training(params):
    model = dataclasses.replace(SMALL, dropout=0.3, attention_dropout=0.3)
    batch, state, key = documents()[0], SMALL.start(B), jax.random.key(1)
    calm = step(model, params, batch, state, key)[0]["nats"]
    np.testing.assert_array_equal(calm, step(SMALL, params, batch, state)[0]["nats"])
    wild = step(model, params, batch, state, key, train=True)[0]["nats"]
    assert np.abs(wild - calm).max() > 0.01
    np.testing.assert_array_equal(wild, step(model, params, batch, state, key, train=True)[0]["nats"])


def test_states_can_be_donated_and_split_over_devices(params):
    """One compiled program on three devices, each with its own slots, gives what one device gives."""
    mesh = Mesh(np.array(jax.devices()[:3]), ("data",))
    slots, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    spread = jax.jit(
        SMALL.apply, in_shardings=(everywhere, slots, slots), out_shardings=(slots, slots), donate_argnums=2
    )
    state, alone = SMALL.start(B), SMALL.start(B)
    for batch in documents()[:4]:
        scores, state = spread(params, batch, state)
        wanted, alone = step(SMALL, params, batch, alone)
        np.testing.assert_allclose(scores["nats"], wanted["nats"], atol=1e-5)
    np.testing.assert_array_equal(state.rings[0].written, alone.rings[0].written)
    assert state.rings[0].keys.sharding == slots


@pytest.mark.slow
def test_half_precision_is_close_and_keeps_float32_parameters(params):
    model = dataclasses.replace(SMALL, dtype="bfloat16", memory_dtype="bfloat16")
    exact, _ = run(SMALL, params, documents())
    rough, state = run(model, params, documents())
    assert state.rings[0].keys.dtype == state.caches[0][0].dtype == jnp.bfloat16
    assert abs(rough.mean() - exact.mean()) < 0.05
    made = jax.eval_shape(model.init, jax.random.key(0))
    assert {x.dtype for x in jax.tree.leaves(made)} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("sizes", "millions"),
    [
        ({}, 184),
        (dict(layers=8, width=2048, hidden=16384, heads=32, memory_layers=(6,)), 871),
        (dict(layers=16, width=4096, hidden=32768, heads=64, memory_layers=(13,)), 6574),
    ],
)
def test_parameter_counts_of_the_paper(sizes, millions):
    model = Model(32_128, **sizes)
    count = sum(x.size for x in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))
    assert round(count / 1e6) == millions
    heads = sizes.get("heads", 8)
    pairs = 2 * 2 * heads * 128  # two slots, keys and values
    assert bytes_of_state(model, 2) == pairs * (8192 * 2 + 512 * 4) + 2 * (4 + 512)
    leading = {x.shape[0] for x in jax.tree.leaves(jax.eval_shape(partial(model.start, 5)))}
    assert leading == {5}


def test_wrong_use_is_explained(params):
    for layers in ((0,), (4,), (2, 2), ()):
        with pytest.raises(ValueError, match="one or more layers, which count from 1 to 3, each once"):
            dataclasses.replace(SMALL, memory_layers=layers)
    with pytest.raises(ValueError, match="neighbours is 32; retrieve at most"):
        dataclasses.replace(SMALL, neighbours=32)
    with pytest.raises(ValueError, match="memory is 20; it must be a multiple of the segment, which is 8"):
        dataclasses.replace(SMALL, memory=20)
    with pytest.raises(ValueError, match="8 positions but segment is 16"):
        dataclasses.replace(SMALL, segment=16).apply(params, documents()[0], SMALL.start(B))
    with pytest.raises(ValueError, match="did you mean 'joint'"):
        dataclasses.replace(SMALL, combination="join")
    batch = {k: x for k, x in documents()[0].items() if k != "document_start"}
    with pytest.raises(ValueError, match="feed documents in order"):
        SMALL.apply(params, batch, SMALL.start(B))
    assert hash(dataclasses.replace(SMALL, memory_layers=[2])) == hash(SMALL)
