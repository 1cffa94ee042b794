"""Pieces: the same numbers and gradients as in one go, and no whole inner array."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reformer import Full, Local, Model, positions
from reformer.chunked import cut, over_stretches, pull_over_stretches


def rows(params, x, shift):
    return jnp.tanh(x @ params) + shift


@pytest.mark.parametrize("most", [3, 4, 7, 12, 100])
def test_stretches_equal_the_whole(most):
    key = jax.random.key(0)
    params, x = jax.random.normal(key, (5, 6)), jax.random.normal(key, (2, 12, 5))
    shift, dy = jax.random.normal(key, (2, 12, 1)), jax.random.normal(jax.random.key(1), (2, 12, 6))
    y, back = jax.vjp(lambda p, x: rows(p, x, shift), params, x)
    z, pieces = jax.vjp(lambda p, x: over_stretches(rows, most, p, x, shift), params, x)
    np.testing.assert_allclose(z, y, atol=1e-6)
    pulled = pull_over_stretches(rows, most, params, x, shift, dy)
    for a, b, c in zip((y, *back(dy)), (z, *pieces(dy)), pulled, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-5)
        np.testing.assert_allclose(c, a, atol=1e-5)


def test_cut_covers_the_length_and_prefers_whole_stretches():
    for length in range(1, 80):
        for most in range(1, 90):
            pieces, size = cut(length, most)
            assert size <= most or most < 1
            assert pieces * size >= length > (pieces - 1) * size
            if any(length % n == 0 and length // n <= most for n in range(1, 2 * -(-length // most))):
                assert pieces * size == length


def largest(jaxpr):
    """Elements of the largest array in a program and in the programs inside it."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [v.aval.size for v in equation.outvars if hasattr(v.aval, "size")]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                sizes.append(largest(inner))
    return max(sizes)


def long_rows(b):
    """Shapes of a batch of b rows of 64K positions."""
    numbers = {"target_tokens": jnp.int32, "input_tokens": jnp.int32, "segment_ids": jnp.int32}
    numbers["loss_weights"] = jnp.float32
    return {f"decoder_{name}": jax.ShapeDtypeStruct((b, 65536), number) for name, number in numbers.items()}


def test_logits_and_hidden_layer_of_64k_positions_never_exist():
    model = Model(4096, 65536, width=8, hidden=4096, heads=1, residual="reversible",
                  attention=Full(), feedforward_chunk=256, loss_chunk=256)  # fmt: skip
    data = long_rows(1)
    loss = lambda model, p, data: model.apply(p, data, train=True)[0]["nats"].sum()  # noqa: E731
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    whole = dataclasses.replace(model, feedforward_chunk=65536, loss_chunk=65536)
    assert largest(jax.make_jaxpr(jax.grad(partial(loss, model)))(shapes, data).jaxpr) <= 256 * 4096
    assert largest(jax.make_jaxpr(jax.grad(partial(loss, whole)))(shapes, data).jaxpr) == 65536 * 4096


@pytest.mark.parametrize(("hidden", "vocabulary", "heads"), [(2**16, 8, 1), (8, 4096, 1), (8, 8, 512)])
def test_four_devices_get_pieces_four_times_as_large(hidden, vocabulary, heads):
    """Each keeps to the budgets of one: of the hidden layer, of the logits, of the heads computed together."""

    def most(b, shares):
        model = Model(vocabulary, 65536, width=8, hidden=hidden, heads=heads, head_width=8, shares=shares,
                      attention=Local(), residual="reversible")  # fmt: skip
        score = lambda p, data: model.apply(p, data)[0]["nats"]  # noqa: E731
        return largest(jax.make_jaxpr(score)(jax.eval_shape(model.init, jax.random.key(0)), long_rows(b)).jaxpr)

    assert most(4, shares=1) <= 1.1 * most(1, shares=1)
    assert most(4, shares=4) == 4 * most(1, shares=1)
    assert most(3, shares=4) == 3 * most(1, shares=1)


def test_axial_rows_are_the_grid_read_row_by_row():
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(n, w)).astype(np.float32) for n, w in ((3, 2), (4, 1), (5, 3))]
    whole = np.array([np.concatenate([tables[0][i], tables[1][j], tables[2][k]])
                      for i in range(3) for j in range(4) for k in range(5)])  # fmt: skip
    for length in (1, 4, 5, 6, 20, 23, 60):
        np.testing.assert_array_equal(positions.axial_rows(tables, length), whole[:length])
    np.testing.assert_array_equal(positions.axial_at(tables, jnp.array([[0, 59], [23, 7]])), whole[[[0, 59], [23, 7]]])


def test_only_the_rows_in_use_are_built():
    tables = [jax.ShapeDtypeStruct((1024, 8), jnp.float32), jax.ShapeDtypeStruct((1024, 8), jnp.float32)]
    made = jax.make_jaxpr(partial(positions.axial_rows, length=1500))(tables)
    assert largest(made.jaxpr) <= 2 * 1024 * 16


@pytest.mark.slow
def test_axial_models_train_at_any_length_up_to_the_grid():
    model = Model(7, 24, width=16, hidden=16, heads=2, positions="axial", axial_grid=(4, 6), axial_widths=(4, 12))
    params = model.init(jax.random.key(0))
    for length in (5, 24):
        tokens = np.ones((2, length), np.int32)
        data = dict.fromkeys(("decoder_target_tokens", "decoder_input_tokens", "decoder_segment_ids"), tokens)
        data["decoder_loss_weights"] = tokens.astype(np.float32)
        grads = jax.jit(jax.grad(lambda p, data=data: model.apply(p, data)[0]["nats"].sum()))(params)
        used = np.abs(grads["embedding"]["positions_0"]).sum(-1) > 0
        assert used.tolist() == [i * 6 < length for i in range(4)]


def test_proposals_fit():
    assert positions.propose_grid(65_536) == (64, 1024)
    for length in (1, 2, 100, 1024, 12_288, 524_288, 1_048_576):
        for axes in (2, 3):
            grid, widths = positions.propose_grid(length, axes), positions.propose_widths(256, axes)
            positions.check_grid(length, 256, grid, widths)
    with pytest.raises(ValueError, match=r"propose_grid\(100, 2\) is"):
        Model(7, 100, positions="axial", axial_grid=(4, 6))
    with pytest.raises(ValueError, match="add up to 250"):
        Model(7, 24, positions="axial", axial_grid=(4, 6), axial_widths=(100, 150))
