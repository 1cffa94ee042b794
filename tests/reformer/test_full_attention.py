"""Exact attention against the dense float64 reference, and its promises about memory."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import at_real, draw

from reformer import Full
from reformer.full import attention, shared_attention, shared_keys

B, H, D = 2, 2, 8
HOLES = np.ones((B, 21), bool)
HOLES[0, [0, 1, 7, 20]] = False  # the first position, the second, one inside, the last
HOLES[1] = False  # a row of padding only
ALL = np.ones((B, 21), bool)


@pytest.mark.parametrize("keep", [None, HOLES], ids=["all", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both-ways"])
def test_shared_attention_and_its_gradient(causal, keep):
    q, v, do = draw(B, H, 21, D), draw(B, H, 21, D, seed=1), draw(B, H, 21, D, seed=2)
    mask = ALL if keep is None else keep
    do = do * mask[:, None, :, None]

    @jax.jit
    def run(q, v):
        o, back = jax.vjp(partial(shared_attention, causal=causal, keep=keep, block=8), q, v)
        return o, back(do)

    o, grads = run(q, v)
    reference = oracles.shared(q, v, causal, keep)
    np.testing.assert_allclose(at_real(o, mask), at_real(reference, mask), atol=3e-6)
    assert np.isfinite(o).all()
    wanted = oracles.shared_gradients(q, v, do, causal, keep)
    for got, want in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize(("length", "block"), [(21, 8), (1, 8), (16, 64)])
def test_ordinary_attention_of_any_length(length, block):
    q, k, v = (draw(B, H, length, D, seed=s) for s in range(3))
    o = jax.jit(partial(attention, block=block))(q, k, v)
    np.testing.assert_allclose(o, oracles.attention(q, k, v), atol=3e-6)


def test_attention_to_another_sequence():
    q, k, v = draw(B, H, 5, D), draw(B, H, 21, D, seed=1), draw(B, H, 21, 3, seed=2)
    o = jax.jit(partial(attention, causal=False, block=8))(q, k, v, keep=HOLES)
    np.testing.assert_allclose(o, oracles.attention(q, k, v, False, HOLES), atol=3e-6)
    assert not o[1].any()  # nothing but padding to look at


def test_gradient_of_ordinary_attention():
    q, k, v, do = (draw(1, 1, 21, D, seed=s) for s in range(4))

    def plain(q, k, v):
        x = jnp.einsum("bhid,bhjd->bhij", q, k) * D**-0.5
        x = jnp.where(jnp.tril(jnp.ones((1, 1, 21, 21), bool)), x, -1e30)
        return jnp.sum(do * jnp.einsum("bhij,bhje->bhie", jax.nn.softmax(x, -1), v))

    def ours(q, k, v):
        return jnp.sum(do * attention(q, k, v, block=8))

    got, want = (jax.jit(jax.grad(f, (0, 1, 2)))(q, k, v) for f in (ours, plain))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


@pytest.mark.parametrize("scale", ["official", "paper"])
def test_scale(scale):
    q, v = draw(1, H, 21, D), draw(1, H, 21, D, seed=1)
    np.testing.assert_allclose(shared_keys(q, scale), oracles.unit_keys(q, scale), atol=1e-6)
    o = jax.jit(Full(scale=scale).attend)(q, None, v)
    np.testing.assert_allclose(o, oracles.shared(q, v, scale=scale), atol=3e-6)


def test_first_position_copies_itself_and_padding_alone_is_zero():
    q, v = draw(B, H, 21, D), draw(B, H, 21, D, seed=1)
    o = jax.jit(partial(shared_attention, block=8))(q, v, keep=HOLES)
    np.testing.assert_array_equal(o[0, :, 2], v[0, :, 2])  # the first that is not padding
    assert not o[1].any()


def test_dropout_zeroes_weights_after_the_softmax_and_is_differentiated():
    rate, length = 0.25, 21
    q, v, do = draw(1, H, length, D), draw(1, H, length, D, seed=1), draw(1, H, length, D, seed=2)
    run = jax.jit(partial(shared_attention, dropout=rate, key=jax.random.key(3), block=8))
    eye = np.broadcast_to(np.eye(length, dtype=np.float32), (1, H, length, length))
    weights = np.asarray(jax.jit(partial(shared_attention, block=8))(q, eye))
    drop = np.asarray(run(q, eye)) / np.where(weights > 0, weights, 1.0)
    drop[:, :, 0, 0] = 1.0
    lower = drop[:, :, np.tri(length, k=-1, dtype=bool)]
    assert np.all(np.isclose(lower, 0) | np.isclose(lower, 1 / (1 - rate)))
    assert 0.1 < np.isclose(lower, 0).mean() < 0.4
    np.testing.assert_array_equal(drop[:, 0] > 0, drop[:, 1] > 0)  # one mask for the heads
    want = oracles.shared_gradients(q, v, do, drop=drop)
    got = jax.jit(jax.grad(lambda q, v: jnp.sum(do * run(q, v)), (0, 1)))(q, v)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


def test_bfloat16_is_finite_and_near():
    q, v = draw(1, H, 64, D) * 3, draw(1, H, 64, D, seed=1)
    low = [jnp.asarray(x, jnp.bfloat16) for x in (q, v)]

    @jax.jit
    def run(q, v):
        o, back = jax.vjp(partial(shared_attention, block=16), q, v)
        return o, back(jnp.ones_like(o))

    o, grads = run(*low)
    wide = oracles.shared(*(np.asarray(x, np.float64) for x in low))
    assert o.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(o, np.float64), wide, atol=0.03)
    assert all(np.isfinite(np.asarray(g, np.float32)).all() for g in grads)


def test_memory_is_linear_in_the_length():
    def temporary(length):
        x = jax.ShapeDtypeStruct((1, 1, length, D), jnp.float32)
        run = jax.grad(lambda q, v: shared_attention(q, v, block=128).sum(), (0, 1))
        return jax.jit(run).lower(x, x).compile().memory_analysis().temp_size_in_bytes

    short, long = temporary(1024), temporary(4096)
    assert long < 4.2 * short
    assert long < 4096 * 4096  # not even a bit mask of l x l bytes


def test_wrong_use_is_explained():
    q = draw(B, H, 21, D)
    with pytest.raises(TypeError, match="True where a position is kept"):
        shared_attention(q, q, keep=HOLES.astype(np.int32))
    with pytest.raises(ValueError, match=r"must be \[b,m\]"):
        shared_attention(q, q, keep=HOLES[:1])
    with pytest.raises(ValueError, match="causal=False"):
        attention(q, q[:, :, :5], q[:, :, :5])
    with pytest.raises(ValueError, match="did you mean 'official'"):
        Full(scale="oficial")
    with pytest.raises(ValueError, match=r"pass a jax\.random\.key"):
        Full(dropout=0.1).attend(q, None, q, train=True)
    with pytest.raises(ValueError, match="k is None"):
        Full(shared=False).attend(q, None, q)
