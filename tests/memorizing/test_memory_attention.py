"""Local attention, reading the memory, and their combination: against loops, and gradients against formulas."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from memorizing_oracle import FIRST, attend, bias_bucket, softmax
from oracles import draw

from memorizing import attention, memory
from memorizing.attention import Attended, Past
from memorizing.retrieve import Found

B, H, L, D, W = 2, 2, 10, 3, 6
SCALE, TABLE = np.array([1.5, 0.7], np.float32), draw(H, 32)


def test_bias_buckets_are_t5s():
    distances = np.arange(-3, 300)
    np.testing.assert_array_equal(attention.bias_bucket(distances), [bias_bucket(n) for n in distances])
    assert [int(np.argmax(attention.bias_bucket(np.arange(200)) == n)) for n in range(16, 32)] == FIRST


@pytest.mark.parametrize(("c", "w"), [(4, 4), (3, 40), (1, 7)])
def test_bias_aligns_the_last_query_with_the_last_key(c, w):
    bias = attention.position_bias(TABLE, c, w)
    for i, j in np.ndindex(c, w):
        np.testing.assert_array_equal(bias[:, i, j], TABLE[:, bias_bucket((w - 1 - j) - (c - 1 - i))])


def by_loops(q, k, v, past, real, strict, window):
    """Outputs [b,h,l,e] and log-normalisers [b,h,l]."""
    out, lse = np.zeros((B, H, L, D)), np.full((B, H, L), -np.inf)
    for b, h, i in np.ndindex(B, H, L):
        keys, values, distances = [], [], []
        for j in range(-window, L):
            distance = i - j
            if distance < (1 if strict else 0) or distance > (window or L):
                continue
            if j < 0 and past.real[b, j + window]:
                keys.append(past.keys[b, h, j + window])
                values.append(past.values[b, h, j + window])
                distances.append(distance)
            if j >= 0 and real[b, j]:
                keys.append(k[b, h, j])
                values.append(v[b, h, j])
                distances.append(distance)
        o, scores = attend(q[b, h, i].astype(np.float64), keys, values, SCALE[h], TABLE[h], distances)
        out[b, h, i] = o
        if scores:
            lse[b, h, i] = max(scores) + np.log(np.exp(np.array(scores) - max(scores)).sum())
    return out, lse


@pytest.mark.parametrize(("strict", "window", "block"), [(False, W, 4), (True, W, 16), (True, 0, 4)])
def test_windows_masks_and_bias_are_exact(strict, window, block):
    q, k, v = (draw(B, H, L, D, seed=n) for n in range(3))
    real = np.ones((B, L), bool)
    real[1, [0, 7]] = False
    seen = np.ones((B, W), bool)
    seen[0, :2], seen[1] = False, False  # a cache that is half full, and one whose document begins
    past = Past(draw(B, H, W, D, seed=3), draw(B, H, W, D, seed=4), seen) if window else None
    run = jax.jit(partial(attention.attend, strict=strict, block=block))
    found = run(q, k, v, SCALE, TABLE, past, real)
    o, lse = by_loops(q, k, v, past, real, strict, window)
    np.testing.assert_allclose(found.output, o, atol=1e-5)
    nothing = np.isinf(lse)
    assert nothing.any()
    np.testing.assert_allclose(found.lse[~nothing], lse[~nothing], atol=1e-5)
    assert (np.asarray(found.lse)[nothing] == np.float32(attention.FLOOR)).all()
    assert (np.asarray(found.output)[nothing] == 0).all()


def test_cache_keeps_the_last_positions_and_forgets_at_a_start():
    past = Past(draw(B, H, W, D), draw(B, H, W, D, seed=1), np.ones((B, W), bool))
    k, v, real = draw(B, H, 4, D), draw(B, H, 4, D, seed=1), np.array([[1, 1, 1, 1], [1, 0, 0, 0]], bool)
    new = attention.advance(past, k, v, real)
    np.testing.assert_array_equal(new.keys, np.concatenate([past.keys, k], 2)[:, :, -W:])
    np.testing.assert_array_equal(new.values, np.concatenate([past.values, v], 2)[:, :, -W:])
    np.testing.assert_array_equal(new.real, np.concatenate([past.real, real], 1)[:, -W:])
    for null in (False, True):
        cut = attention.forget(past, np.array([0, 1]), null)
        np.testing.assert_array_equal(cut.real, [[True] * W, [null] * W])
        np.testing.assert_array_equal(cut.keys, past.keys * np.array([1, 0])[:, None, None, None])
    assert (np.asarray(jax.grad(lambda k: attention.advance(past, k, v, real).keys.sum())(k)) == 0).all()


# ---- memory --------------------------------------------------------------------------------

M, K = 12, 4


def recalled():
    """Queries, a memory, and results of which row 0 of slot 1 has two and row 1 none."""
    rng = np.random.default_rng(0)
    index = np.stack([rng.permutation(M)[:K] for _ in range(B * H * L)]).reshape(B, H, L, K).astype(np.int32)
    real = np.ones((B, H, L, K), bool)
    real[1, :, 0, 2:], real[1, :, 1] = False, False
    found = Found(index, np.zeros(index.shape, np.float32), real)
    return draw(B, H, L, D), draw(B, H, M, D, seed=1), draw(B, H, M, D, seed=2), found


@pytest.mark.parametrize("null", [False, True])
def test_reading_is_a_softmax_over_what_was_found_with_gradients_for_queries_alone(null):
    q, keys, values, found = recalled()
    do, dlse = draw(B, H, L, D, seed=5), draw(B, H, L, seed=6)

    def read(q, keys, values):
        return memory.read(q, keys, values, found, null)

    result, pull = jax.jit(lambda *xs: (read(*xs), jax.vjp(read, *xs)[1](Attended(do, dlse))))(q, keys, values)
    dq, *stored = pull
    assert all((np.asarray(x) == 0).all() for x in stored)
    p = np.asarray(memory.weights(q, keys, found, null))
    for b, h, i in np.ndindex(B, H, L):
        there = found.real[b, h, i]
        k = np.where(there[:, None], keys[b, h, found.index[b, h, i]], 0).astype(np.float64)
        v = np.where(there[:, None], values[b, h, found.index[b, h, i]], 0).astype(np.float64)
        if not null:
            k, v = k[there], v[there]
        scores = k @ q[b, h, i]
        weights = softmax(scores)
        o = weights @ v if len(v) else np.zeros(D)
        np.testing.assert_allclose(result.output[b, h, i], o, atol=1e-5)
        if len(k):
            np.testing.assert_allclose(result.lse[b, h, i], np.log(np.exp(scores).sum()), atol=1e-5)
            np.testing.assert_allclose(p[b, h, i] if null else p[b, h, i][there], weights, atol=1e-5)
        ds = weights * (v @ do[b, h, i] - o @ do[b, h, i] + dlse[b, h, i])
        np.testing.assert_allclose(dq[b, h, i], ds @ k, atol=1e-5)


def test_combinations():
    o, r = draw(B, H, L, D), draw(B, H, L, D, seed=1)
    x, y = draw(B, H, L), draw(B, H, L, seed=1)
    x[0, 0, 0] = y[0, 0, 0] = y[0, 1, 2] = attention.FLOOR
    r[0, 0, 0] = o[0, 0, 0] = r[0, 1, 2] = 0  # nothing was seen there
    local, found = Attended(jnp.asarray(o), jnp.asarray(x)), Attended(jnp.asarray(r), jnp.asarray(y))
    gate = np.array([0.3, -np.inf], np.float32)
    mixed, share = memory.combine("gate", local, found, gate)
    g = 1 / (1 + np.exp(-0.3))
    np.testing.assert_allclose(mixed[:, 0], (1 - g) * o[:, 0] + g * r[:, 0], atol=1e-6)
    np.testing.assert_array_equal(mixed[:, 1], o[:, 1])  # closed: bit for bit
    np.testing.assert_allclose(share[:, 0], np.full((B, L), g), atol=1e-6)
    mixed, share = memory.combine("joint", local, found, None)
    w = 1 / (1 + np.exp(np.clip(x.astype(np.float64) - y, -700, 700)))
    w[0, 0, 0] = 0
    np.testing.assert_allclose(share, w, atol=1e-6)
    np.testing.assert_allclose(mixed, o * (1 - w[..., None]) + r * w[..., None], atol=1e-6)
    with pytest.raises(ValueError, match="combination is 'add'"):
        memory.combine("add", local, found, None)


def test_joint_softmax_is_one_softmax():
    scores, values = draw(9), draw(9, D)
    parts = []
    for part in (slice(0, 5), slice(5, 9)):
        p, lse = attention.softmax(jnp.asarray(scores[part]))
        parts.append(Attended((p @ values[part])[None, None, None], lse[None, None, None]))
    mixed, _ = memory.combine("joint", *parts, None)
    np.testing.assert_allclose(mixed[0, 0, 0], softmax(scores.astype(np.float64)) @ values, atol=1e-6)
