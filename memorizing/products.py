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


def over_groups(function, *arrays, stores=()):
    """`function` of every slot and head: arrays [b,h,...] -> results [b,h,...].

    stores: large arrays [b,h,M,...] of which single entries are taken: after its arrays `function` gets for each
        store what takes entries index [...] of that slot and head.

    On CPU one pair after the other, so that its arrays stay in the caches. Elsewhere all slots at
    once, and one head after the other; entries are taken out of the whole store, since the part of a
    head would first be copied.
    """
    b, h = arrays[0].shape[:2]
    stores = [jnp.asarray(x) for x in stores]
    if jax.default_backend() == "cpu":
        flat = [x.reshape(b * h, *x.shape[2:]) for x in (*arrays, *stores)]
        call = lambda xs: function(*xs[: len(arrays)], *(x.__getitem__ for x in xs[len(arrays) :]))  # noqa: E731
        out = jax.lax.map(call, flat)
        return jax.tree.map(lambda x: x.reshape(b, h, *x.shape[1:]), out)

    def one(slot, head, *xs):
        return function(*xs, *((lambda index, store=store: store[slot, head, index]) for store in stores))

    def every(inputs):
        head, xs = inputs
        return jax.vmap(one, in_axes=(0, None, *[0] * len(xs)))(jnp.arange(b), head, *xs)

    out = jax.lax.map(every, (jnp.arange(h), [x.swapaxes(0, 1) for x in arrays]))
    return jax.tree.map(lambda x: x.swapaxes(0, 1), out)
