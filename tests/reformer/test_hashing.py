"""Buckets, their numbers and their order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw

from reformer import LSH, hashing

LIMIT = np.iinfo(np.int32).max


@pytest.mark.parametrize("factors", [(6,), (4, 6), (2, 4, 2)])
def test_bucket_is_the_largest_of_the_projections_and_their_negatives(factors):
    b, h, r, length, d = 2, 3, 2, 7, 5
    q = draw(b, h, length, d)
    directions = np.asarray(hashing.rotations(jax.random.key(1), h, r, d, factors))
    got = np.asarray(hashing.hash_vectors(q, directions, factors))
    assert got.shape == (b, h, r, length)
    assert got.dtype == np.int32
    for x, y, s, p in np.ndindex(b, h, r, length):
        projected = q[x, y, p].astype(np.float64) @ directions[y, s].astype(np.float64)
        ids, unit, column = 0, 1, 0
        for f in factors:
            piece = projected[column : column + f // 2]
            ids += unit * int(np.argmax(np.concatenate([piece, -piece])))
            unit, column = unit * f, column + f // 2
        assert got[x, y, s, p] == ids


def test_rotations_are_fresh_per_head_and_round_and_shared_by_the_batch():
    same = np.broadcast_to(draw(9, 16), (2, 4, 9, 16))
    directions = hashing.rotations(jax.random.key(0), 4, 3, 16, (32,))
    ids = np.asarray(hashing.hash_vectors(same, directions, (32,)))
    np.testing.assert_array_equal(ids[0], ids[1])
    flat = ids[0].reshape(12, 9)
    assert len({tuple(row) for row in flat}) == 12
    again = hashing.hash_vectors(1000.0 * same, directions, (32,))
    np.testing.assert_array_equal(ids, again)  # lengths do not matter


def test_bucket_numbers_are_even_and_about_two_a_chunk():
    for length in (*range(1, 300), 1024, 4097, 65_536, 1_048_576):
        for chunk in (1, 7, 32, 64, 128):
            factors = hashing.bucket_factors(length, chunk)
            hashing.check_factors(factors)
            wanted = 2 * max(1, -(-length // chunk))
            assert wanted <= np.prod(factors) <= 2 * wanted
            assert sum(factors) <= max(64, 8 * wanted**0.5)  # the cost of hashing stays low


@pytest.mark.parametrize("buckets", [7, (4, 3), 0, 2.0])
def test_odd_bucket_numbers_are_refused(buckets):
    with pytest.raises(ValueError, match="even whole number"):
        LSH(buckets=buckets)


def test_directions_of_another_size_are_refused():
    directions = hashing.rotations(jax.random.key(0), 1, 1, 4, (8,))
    with pytest.raises(ValueError, match="4 columns, but bucket factors"):
        hashing.hash_vectors(draw(1, 1, 3, 4), directions, (8, 4))


@pytest.mark.parametrize("count", [5, LIMIT // 23, LIMIT // 23 + 1], ids=["few", "last", "two-key"])
def test_order_is_stable_whether_packed_or_not(count):
    buckets = np.random.default_rng(0).integers(0, 5, (2, 3, 23)).astype(np.int32)
    buckets[buckets == 4] = count - 1  # the largest id there may be
    order, slot = jax.jit(hashing.sort_by_bucket, static_argnums=1)(buckets, count)
    np.testing.assert_array_equal(order, np.argsort(buckets, axis=-1, kind="stable"))
    np.testing.assert_array_equal(slot, np.argsort(np.asarray(order), axis=-1))


def test_packing_stops_where_int32_ends():
    def sort(count):
        ids = jax.ShapeDtypeStruct((1 << 20,), jnp.int32)
        return str(jax.make_jaxpr(lambda x: hashing.sort_by_bucket(x, count))(ids))

    assert "num_keys=1" in sort(2047)
    assert "num_keys=2" in sort(2048)  # 2048 x 1,048,576 is 2^31


def test_a_million_positions_in_32_rounds_has_a_program():
    q = jax.ShapeDtypeStruct((1, 2, 1 << 20, 64), jnp.float32)
    setting = LSH(rounds=32)
    assert np.prod(setting.factors(1 << 20)) << 20 > LIMIT
    out = jax.eval_shape(lambda q, v: setting.attend(q, None, v), q, q)
    assert out.shape == q.shape
