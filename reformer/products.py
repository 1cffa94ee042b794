"""Products of arrays that accumulate in float32 whatever the inputs are."""

import jax
import jax.numpy as jnp


def einsum(subscripts, *arrays):
    """`jnp.einsum` with a float32 result, and float32 sums inside.

    XLA's CPU backend has no bfloat16 x bfloat16 -> float32 product, so there the inputs are
    widened first; the numbers are the same.
    """
    if jax.default_backend() == "cpu":
        arrays = [x.astype(jnp.float32) for x in arrays]
    return jnp.einsum(subscripts, *arrays, preferred_element_type=jnp.float32)
