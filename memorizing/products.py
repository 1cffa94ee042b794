"""Products that accumulate in float32, and loops over the (slot, head) pairs of a batch."""

import jax
import jax.numpy as jnp


def einsum(subscripts, *arrays):
    """`jnp.einsum` with a float32 result and float32 sums inside, whatever the inputs are.

    XLA's CPU backend has no such product of bfloat16 arrays, so there they are widened first.
    """
    if jax.default_backend() == "cpu":
        arrays = [x.astype(jnp.float32) for x in arrays]
    return jnp.einsum(subscripts, *arrays, preferred_element_type=jnp.float32)


def over_groups(function, *arrays):
    """`function` of every slot and head: arrays [b,h,...] -> results [b,h,...].

    On CPU one pair after the other, so that its arrays stay in the caches. Elsewhere all slots at
    once, since they may live on different devices, and one head after the other.
    """
    if jax.default_backend() == "cpu":
        b, h = arrays[0].shape[:2]
        arrays = [x.reshape(b * h, *x.shape[2:]) for x in arrays]
        out = jax.lax.map(lambda xs: function(*xs), arrays)
        return jax.tree.map(lambda x: x.reshape(b, h, *x.shape[1:]), out)
    arrays = [x.swapaxes(0, 1) for x in arrays]
    out = jax.lax.map(lambda xs: jax.vmap(function)(*xs), arrays)
    return jax.tree.map(lambda x: x.swapaxes(0, 1), out)
