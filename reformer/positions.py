"""Positions: what says where a token stands, added to its embedding; learned, unless the kind is 'fixed'.

A table has one row per position. An axial embedding (Appendix of the authors' code, not in the
paper) lays positions out in a grid, row by row, and joins one short vector per axis: 64 x 1024
positions need 64 + 1024 rows. It serves any length up to the grid's.
"""

import math

import jax
import jax.numpy as jnp

KINDS = ("sinusoid", "normal", "axial", "fixed")


def sinusoids(length, width):
    """Sines and cosines float32 [length,width], interleaved, wavelengths 2 pi to 20,000 pi."""
    return sinusoids_at(jnp.arange(length), width)


def sinusoids_at(at, width):
    """The rows of `sinusoids` for positions int32 [...] -> float32 [...,width]."""
    rate = jnp.exp(-jnp.log(10_000.0) * jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle = at[..., None].astype(jnp.float32) * jnp.expand_dims(rate, range(at.ndim))
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(*at.shape, -1)[..., :width]


def initial(kind, stddev):
    """Initialiser of a learned table [length,width].

    'sinusoid': sines and cosines (as in the authors' first configurations), scaled so that
        the entries' root mean square is `stddev`; None leaves them as they are, sqrt(1/2).
    'normal', and every axis of 'axial': independent normal entries of standard deviation `stddev`, None for 1.
    """
    if kind != "sinusoid":
        stddev = 1.0 if stddev is None else stddev
        return lambda key, shape, dtype=jnp.float32: stddev * jax.random.normal(key, shape, dtype)
    scale = 1.0 if stddev is None else stddev * 2**0.5
    return lambda key, shape, dtype=jnp.float32: (scale * sinusoids(*shape)).astype(dtype)


def propose_grid(length, axes=2):
    """Sides of a grid of at least `length` positions, powers of two, the first the shortest: (64, 1024) for 65,536.

    As in the authors' settings the last axis, along which neighbours stand, is the longest.
    """
    bits = max(axes, math.ceil(math.log2(max(2, length))))
    first = max(1, bits * 3 // (4 * axes))
    sides = [2**first] * (axes - 1)
    return (*sides, 2 ** (bits - first * (axes - 1)))


def propose_widths(width, axes=2):
    """Features of each axis, `width` in all; the last axis gets the rest: (256, 768) for 1024 and two axes."""
    each = width // (2 * axes)
    return (*((each,) * (axes - 1)), width - each * (axes - 1))


def check_grid(length, width, grid, widths):
    """Raises unless a grid and its features fit a model of `length` positions and `width` features."""
    if len(grid) != len(widths) or not grid or min(*grid, *widths) < 1:
        raise ValueError(f"axial positions need as many sides as widths, all at least 1; got {grid} and {widths}")
    if math.prod(grid) < length:
        raise ValueError(
            f"the axial grid {grid} has {math.prod(grid)} positions but the model has {length};"
            f" propose_grid({length}, {len(grid)}) is {propose_grid(length, len(grid))}"
        )
    if sum(widths) != width:
        raise ValueError(
            f"the axial widths {widths} add up to {sum(widths)}, not to the model's width {width};"
            f" propose_widths({width}, {len(grid)}) is {propose_widths(width, len(grid))}"
        )


def axial_rows(tables, length):
    """The first `length` rows of a grid, float32 [length,e], from tables [side,width], one per axis.

    Only the part of the grid that is used is built, and its gradient is a sum over whole axes.
    """
    inner = math.prod(t.shape[0] for t in tables[1:])
    rows = -(-length // inner)
    if len(tables) == 1:
        return tables[0][:length]
    rest = axial_rows(tables[1:], min(length, inner))  # fewer, if one row of the grid is enough
    first = jnp.broadcast_to(tables[0][:rows, None], (rows, rest.shape[0], tables[0].shape[1]))
    rest = jnp.broadcast_to(rest[None], (rows, *rest.shape))
    return jnp.concatenate([first, rest], -1).reshape(rows * rest.shape[1], -1)[:length]


def axial_at(tables, at):
    """Rows of single positions: at int32 [...] -> float32 [...,e]."""
    parts, inner = [], 1
    for table in reversed(tables):
        parts.append(table[at // inner % table.shape[0]])
        inner *= table.shape[0]
    return jnp.concatenate(parts[::-1], -1)
