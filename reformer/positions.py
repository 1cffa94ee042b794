"""Learned positions: one row of parameters per position, added to the embedding."""

import jax
import jax.numpy as jnp


def sinusoids(length, width):
    """Sines and cosines float32 [length,width], interleaved, wavelengths 2 pi to 20,000 pi."""
    at = jnp.arange(length, dtype=jnp.float32)[:, None]
    rate = jnp.exp(-jnp.log(10_000.0) * jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle = at * rate[None, :]
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(length, -1)[:, :width]


def initial(kind, stddev):
    """Initialiser of a learned table [length,width].

    'sinusoid': sines and cosines (as in the authors' first configurations), scaled so that
        the entries' root mean square is `stddev`; None leaves them as they are, sqrt(1/2).
    'normal': independent normal entries of standard deviation `stddev`.
    """
    if kind == "normal":
        return lambda key, shape, dtype=jnp.float32: stddev * jax.random.normal(key, shape, dtype)
    scale = 1.0 if stddev is None else stddev * 2**0.5
    return lambda key, shape, dtype=jnp.float32: (scale * sinusoids(*shape)).astype(dtype)


KINDS = ("sinusoid", "normal")
