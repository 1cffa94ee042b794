"""Local attention against the dense reference."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import at_real, draw

from reformer import Local
from reformer.local import local_attention

B, H, D = 2, 2, 8
HOLES = np.ones((B, 21), bool)
HOLES[0, [0, 1, 7, 20]] = False
HOLES[1] = False
ALL = np.ones((B, 21), bool)


def near(length, chunk, before, after):
    """Chunks of i and j are at most that far apart: bool [l,l]."""
    at = np.arange(length) // chunk
    apart = at[None, :] - at[:, None]
    return (apart >= -before) & (apart <= after)


@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
@pytest.mark.parametrize(
    ("causal", "keep", "before", "after", "chunk"),
    [
        (True, HOLES, 2, 3, 4),
        (False, HOLES, 1, 1, 4),
        (True, None, 0, 0, 64),
    ],
)
def test_local_attention(causal, keep, before, after, chunk, shared):
    q, k, v = (draw(B, H, 21, D, seed=s) for s in range(3))
    mask = ALL if keep is None else keep
    window = near(21, chunk, before, after)
    setting = Local(chunk=chunk, before=before, after=after, shared=shared)
    attend = jax.jit(partial(setting.attend, causal=causal, keep=keep))
    o = attend(q, None if shared else k, v)
    if shared:
        reference = oracles.shared(q, v, causal, keep, counts=window)
    else:
        logits = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(D)
        legal = oracles.pairs(21, 21, causal, keep, itself=True) & window
        reference = oracles.dense(logits, v, legal)
    np.testing.assert_allclose(at_real(o, mask), at_real(reference, mask), atol=3e-6)
    assert np.isfinite(o).all()


def test_gradient():
    q, v, do = (draw(B, H, 21, D, seed=s) for s in range(3))
    do = do * HOLES[:, None, :, None]
    attend = Local(chunk=4, shared=True).attend
    got = jax.jit(jax.grad(lambda q, v: jnp.sum(do * attend(q, None, v, keep=HOLES)), (0, 1)))(q, v)
    window = near(21, 4, 1, 0)
    for x, y in zip(got, oracles.shared_gradients(q, v, do, True, HOLES, window), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)


def test_dropout_zeroes_weights_and_keeps_the_mean():
    length = 64
    q, k = draw(1, H, length, D), draw(1, H, length, D, seed=1)
    eye = np.broadcast_to(np.eye(length, dtype=np.float32), (1, H, length, length))
    plain = np.asarray(jax.jit(partial(local_attention, chunk=16))(q, k, eye))
    dropped = jax.jit(partial(local_attention, chunk=16, dropout=0.5, key=jax.random.key(0)))(q, k, eye)
    factor = np.asarray(dropped)[plain > 0] / plain[plain > 0]
    assert np.all(np.isclose(factor, 0) | np.isclose(factor, 2))
    assert 0.4 < np.isclose(factor, 0).mean() < 0.6


def test_wrong_use_is_explained():
    q = draw(B, H, 21, D)
    with pytest.raises(ValueError, match="as many keys as queries"):
        local_attention(q, q[:, :, :5], q[:, :, :5])
    with pytest.raises(ValueError, match="chunk is 0"):
        Local(chunk=0)
