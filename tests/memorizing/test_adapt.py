"""Trained parameters in another model, and memories that grow in the middle of a document."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw

from memorizing import Model, adapt, ring

PLAIN = Model(11, layers=4, width=8, hidden=8, heads=2, head_width=4, memory=0, cache=4)
WITH = dataclasses.replace(PLAIN, memory=16, segment=8, memory_layers=(3,), neighbours=4)


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def shapes(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


@pytest.fixture(scope="module")
def params():
    return PLAIN.init(jax.random.key(0))


def test_a_plain_model_gets_a_memory_and_can_lose_it_again(params):
    given = adapt.convert(params, PLAIN, WITH, gate=-2.0)
    assert shapes(given) == shapes(jax.eval_shape(WITH.init, jax.random.key(0)))
    assert [n for n, _ in WITH.runs] == [2, 1, 1]
    np.testing.assert_array_equal(given["layers"][1]["gate"], [[-2.0, -2.0]])
    third = jax.tree.map(lambda x: x[2], params["layers"][0])
    same({k: jax.tree.map(lambda x: x[0], v) for k, v in given["layers"][1].items() if k != "gate"}, third)
    same(adapt.convert(given, WITH, PLAIN), params)


def test_memories_move_and_multiply_with_their_gates(params):
    two = dataclasses.replace(WITH, memory_layers=(3, 4))
    moved = adapt.convert(adapt.convert(params, PLAIN, WITH, gate=-2.0), WITH, two, gate=1.0)
    assert shapes(moved) == shapes(jax.eval_shape(two.init, jax.random.key(0)))
    assert [stack["gate"][0, 0] for stack in moved["layers"][1:]] == [-2.0, 1.0]
    joint = dataclasses.replace(two, combination="joint")
    assert "gate" not in adapt.convert(moved, two, joint)["layers"][1]


def test_a_larger_memory_takes_the_same_parameters(params):
    given = adapt.convert(params, PLAIN, WITH)
    same(adapt.convert(given, WITH, dataclasses.replace(WITH, memory=64)), given)


@pytest.mark.parametrize("segments", [1, 3, 7])
def test_enlarged_memories_hold_what_the_small_ones_held(segments):
    slots, length = 2, 4
    memory, pairs = ring.empty(slots, 2, 8, 3), [[], []]
    for n in range(segments):
        k = draw(slots, 2, length, 3, seed=n)
        real = np.ones((slots, length), bool)
        real[1, 3:] = n < 2
        memory = ring.write(memory, k, -k, real)
        pairs = [[*held, *k[s].swapaxes(0, 1)[real[s]]] for s, held in enumerate(pairs)]
    state = Model(5).start(1)._replace(rings=(memory,))
    large = adapt.enlarge(state, 20).rings[0]
    more = ring.write(large, k, k)
    for s in range(slots):
        held = np.stack(pairs[s][-8:], axis=1)
        count = held.shape[1]
        assert ring.size(large)[s] == count
        np.testing.assert_array_equal(large.keys[s, :, :count], held)
        np.testing.assert_array_equal(large.values[s, :, :count], -held)
        np.testing.assert_array_equal(more.keys[s, :, count : count + length], k[s])
    with pytest.raises(ValueError, match="20 entries, which do not fit into 16"):
        adapt.enlarge(state._replace(rings=(large,)), 16)


def test_models_that_differ_in_more_are_refused(params):
    with pytest.raises(ValueError, match="width is 8 in the trained model and 16"):
        adapt.convert(params, PLAIN, dataclasses.replace(WITH, width=16))
    unbiased = dataclasses.replace(PLAIN, bias="local")
    with pytest.raises(ValueError, match="neither get nor lose"):
        adapt.convert(unbiased.init(jax.random.key(0)), unbiased, dataclasses.replace(WITH, bias="local"))
    assert jnp.isfinite(params["norm"]).all()
