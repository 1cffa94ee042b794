"""Locality-sensitive hashing of vectors and the order that it puts them in.

Reformer, section 2 ("locality sensitive hashing"): vectors are projected on random
directions R, and the bucket is the index of the largest entry of [xR; -xR]. All ids
are int32 and carry no gradient.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from reformer.products import einsum

# Above this many buckets one rotation is split into two: see `bucket_factors`.
LARGEST_SINGLE = 64


def bucket_factors(length, chunk):
    """Even bucket numbers (f_1, f_2, ...) for a sequence of `length` cut into chunks of `chunk`.

    The paper sizes chunks as twice the mean bucket (c = 2 l / buckets), so there are two
    buckets a chunk. Many buckets are made of two hashes, (f_1 - 1) + f_1 (f_2 - 1) being the
    last one: the cost is then f_1 + f_2 instead of f_1 f_2, and hashing stays cheap however
    long the sequence. A pure function of its arguments: training and evaluation agree.
    """
    buckets = 2 * max(1, -(-length // chunk))
    if buckets <= LARGEST_SINGLE:
        return (buckets,)
    first = 2 ** math.ceil(math.log2(buckets) / 2)
    return (first, 2 * math.ceil(buckets / (2 * first)))


def check_factors(factors):
    """Raises unless all factors are even whole numbers: half of a factor is a rotation's width."""
    for factor in factors:
        if isinstance(factor, bool) or not isinstance(factor, int) or factor < 2 or factor % 2:
            near = max(2, 2 * round(factor / 2)) if isinstance(factor, int | float) else 2
            raise ValueError(
                f"bucket numbers are {tuple(factors)}, but {factor!r} is not an even whole number"
                f" of at least 2 (buckets come in opposite pairs); the nearest is {near}"
            )


def rotations(key, heads, rounds, width, factors):
    """Random directions, float32 [h,r,d,x]: fresh for every head and round, shared by the batch.

    x is the sum of factors / 2: each factor owns that many neighbouring columns.
    """
    check_factors(factors)
    return jax.random.normal(key, (heads, rounds, width, sum(factors) // 2), jnp.float32)


def hash_vectors(q, directions, factors):
    """Bucket ids int32 [b,h,r,l] of q [b,h,l,d] under `directions` [h,r,d,x].

    Ids lie in [0, product of factors); the first factor is the least significant. The length
    of a vector does not matter. Rounds are taken one after the other, which bounds memory.
    """
    if directions.shape[-1] != sum(factors) // 2:
        raise ValueError(
            f"directions have {directions.shape[-1]} columns, but bucket factors {factors} need"
            f" {sum(factors) // 2}; make them with rotations(key, heads, rounds, width, {factors})"
        )
    q = jax.lax.stop_gradient(q)

    def one_round(r):
        x = einsum("bhld,hdx->bhlx", q, r.astype(q.dtype))
        ids, unit, start = 0, 1, 0
        for factor in factors:
            ids += unit * _signed_argmax(x[..., start : start + factor // 2])
            unit *= factor
            start += factor // 2
        return ids

    return jnp.moveaxis(jax.lax.map(one_round, jnp.moveaxis(directions, 1, 0)), 0, 2)


def _signed_argmax(x):
    """Index of the largest entry of [x; -x] along the last axis, int32."""
    top = jnp.argmax(x, axis=-1).astype(jnp.int32)
    low = jnp.argmin(x, axis=-1).astype(jnp.int32)
    return jnp.where(jnp.max(x, axis=-1) >= -jnp.min(x, axis=-1), top, low + x.shape[-1])


def sort_by_bucket(buckets, count):
    """Order of the positions by (bucket, position), and its inverse.

    buckets int32 [...,l] with values in [0, count) -> (order, slot), int32 [...,l] each:
    `order` is the position in each sorted slot, `slot` the sorted slot of each position.

    Bucket and position are packed into one int32 where they fit, since a sort of one
    operand is several times faster on CPU; otherwise (1M positions and 32,768 buckets, say)
    they are two keys. The rounds are sorted apart, so their number cannot overflow anything.
    """
    length = buckets.shape[-1]
    position = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), buckets.shape)
    if count * length <= np.iinfo(np.int32).max:
        order = jax.lax.sort(buckets * length + position, dimension=-1) % length
    else:
        _, order = jax.lax.sort((buckets, position), dimension=-1, num_keys=2)
    return order, invert(order)


def invert(order):
    """Inverse of permutations int32 [...,l], by one scatter of integers (a sort costs 100x)."""
    length = order.shape[-1]
    flat = order.reshape(-1, length)
    row = jnp.arange(flat.shape[0])[:, None]
    ticket = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), flat.shape)
    slot = jnp.zeros_like(flat).at[row, flat].set(ticket, unique_indices=True, mode="promise_in_bounds")
    return slot.reshape(order.shape)
