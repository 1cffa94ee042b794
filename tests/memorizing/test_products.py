"""Loops over slots and heads: the same as a loop in Python, however many there are and wherever they run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw

from memorizing import products


def one_by_one(q, index, store, factor):
    """What `work` does, for every slot and head: sums of products with the entries taken, and which were largest."""
    b, h, length, k = index.shape
    scores, best = np.zeros((b, h, length, k)), np.zeros((b, h, length), np.int32)
    for s, head, i in np.ndindex(b, h, length):
        taken = store[s, head, index[s, head, i]].astype(np.float64)
        scores[s, head, i] = taken @ q[s, head, i] * factor[s, head]
        best[s, head, i] = index[s, head, i, scores[s, head, i].argmax()]
    return scores, best


def work(q, index, factor, entries):
    scores = products.einsum("id,ijd->ij", q, entries(index)) * factor
    return scores, jnp.take_along_axis(index, scores.argmax(-1, keepdims=True), axis=-1)[:, 0]


@pytest.mark.parametrize("backend", ["cpu", "tpu"])
@pytest.mark.parametrize(("b", "h"), [(1, 1), (1, 3), (5, 1)])
def test_every_slot_and_head_is_worked_on_with_its_own_store(b, h, backend, monkeypatch):
    rng = np.random.default_rng(b + h)
    q, store, factor = draw(b, h, 4, 3), draw(b, h, 9, 3, seed=1), draw(b, h, seed=2)
    index = rng.integers(0, 9, (b, h, 4, 5)).astype(np.int32)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    scores, best = products.over_groups(work, *map(jnp.asarray, (q, index, factor)), stores=(store,))
    wanted, largest = one_by_one(q, index, store, factor)
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
    np.testing.assert_array_equal(best, largest)


def test_products_of_half_precision_are_summed_in_single():
    x = np.concatenate([np.full(600, 0.01), [256.0]]).astype(jnp.bfloat16)
    found = products.einsum("i,i->", x, np.ones_like(x))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, x.astype(np.float64).sum(), rtol=1e-5)
