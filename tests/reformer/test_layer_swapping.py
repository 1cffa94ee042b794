"""Parameters in the host's memory: the same numbers, and gradients beside their parameters."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from reformer import Full, Model, Seq2Seq

BATCH = {
    "decoder_target_tokens": np.arange(1, 17, dtype=np.int32).reshape(2, 8) % 11,
    "decoder_input_tokens": np.arange(16, dtype=np.int32).reshape(2, 8) % 11,
    "decoder_loss_weights": np.ones((2, 8), np.float32),
    "decoder_segment_ids": np.ones((2, 8), np.int32),
    "encoder_input_tokens": np.arange(2, 18, dtype=np.int32).reshape(2, 8) % 11,
    "encoder_segment_ids": np.ones((2, 8), np.int32),
}
SIZES = {"vocabulary": 11, "length": 8, "layers": 2, "width": 8, "hidden": 16, "heads": 2}
# The tied table is used at both ends, and its two gradients must meet on the device.
TIED = Model(**SIZES, attention=Full(block=8), residual="reversible", merge="average", tie_output=True, dropout=0.1)


def on_host(params):
    return jax.device_put(params, SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host"))


def loss(model, params):
    return model.apply(params, BATCH, (), jax.random.key(1), train=True)[0]["nats"].sum()


@pytest.mark.parametrize(
    "model",
    [
        TIED,
        pytest.param(dataclasses.replace(TIED, backward="remat"), marks=pytest.mark.slow),
        pytest.param(dataclasses.replace(TIED, residual="single"), marks=pytest.mark.slow),
        pytest.param(Seq2Seq(**SIZES, tie="all"), marks=pytest.mark.slow),
    ],
    ids=["invert", "remat", "single", "seq2seq"],
)
def test_loss_and_gradients_do_not_depend_on_where_parameters_are(model):
    params = model.init(jax.random.key(0))
    function = jax.jit(jax.value_and_grad(partial(loss, model)))
    value, grads = function(params)
    swapped_value, swapped = function(on_host(params))
    assert value == swapped_value
    assert {g.sharding.memory_kind for g in jax.tree.leaves(swapped)} == {"pinned_host"}
    assert {g.sharding.memory_kind for g in jax.tree.leaves(grads)} == {"device"}
    jax.tree.map(np.testing.assert_array_equal, grads, swapped)


@pytest.mark.slow
def test_a_model_writes_and_translates_the_same():
    tokens = BATCH["encoder_input_tokens"]
    model = dataclasses.replace(TIED, dropout=0.0, length=10)
    params = model.init(jax.random.key(0))
    drawn = [model.generate(p, tokens, 2, jax.random.key(2)) for p in (params, on_host(params))]
    np.testing.assert_array_equal(*drawn)
    model = Seq2Seq(**SIZES)
    params = model.init(jax.random.key(0))
    found = [model.translate(p, tokens, tokens > 0, beams=2).tokens for p in (params, on_host(params))]
    np.testing.assert_array_equal(*found)


def copies(jaxpr):
    """Sizes of all arrays that a program, or one inside it, moves from one memory to another."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "device_put":
            found.extend(x.aval.size for x in equation.invars)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            found.extend(copies(inner) if hasattr(inner, "eqns") else ())
    return found


def test_layers_are_fetched_one_by_one_and_only_where_the_host_holds_them():
    params = dataclasses.replace(TIED, layers=4).init(jax.random.key(0))
    gradient = jax.grad(partial(loss, dataclasses.replace(TIED, layers=4)))
    assert copies(jax.make_jaxpr(gradient)(params).jaxpr) == []
    layers, rest = params["layers"], (params["embedding"], params["head"])
    one, rest = ([x.size for x in jax.tree.leaves(tree)] for tree in (jax.tree.map(lambda x: x[0], layers), rest))
    # A layer forward, again backward, and its gradient; embedding and head there and back.
    expected = sorted(3 * one + 2 * rest)
    assert sorted(copies(jax.make_jaxpr(gradient)(on_host(params)).jaxpr)) == expected
