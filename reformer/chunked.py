"""Work that is done piece by piece, so that its inner arrays never exist whole (section 3, "Chunking").

Two kinds of work fall into pieces that need nothing of each other: what is done to every position
alone (feed-forward, loss) falls into stretches of the sequence, and attention falls into heads. A
piece is computed again in the backward pass, right before its gradient, so at any time the inner
arrays of one piece exist.

For each kind there are two functions: the work itself, which has a gradient, and `pull_...`, which
is given the gradient of the result and returns the result with all gradients from ONE pass over
the pieces. A reversible layer needs both at once, and so gets pieces for nothing.

A piece's function is static: a plain function or a `functools.partial`, without arrays inside.
"""

from functools import partial

import jax
import jax.numpy as jnp


def cut(length, most):
    """(number of stretches, positions in each) for `length` positions, at most `most` at a time.

    Whole stretches are preferred to a padded last one, if there need not be twice as many.
    """
    least = -(-length // max(1, min(most, length)))
    for pieces in range(least, 2 * least):
        if length % pieces == 0:
            return pieces, length // pieces
    return least, -(-length // least)


def allowed(budget, rows, shares, size):
    """Things of `size` elements in every row that one device may compute at a time, at least one.

    budget: elements of one device. rows: of the whole batch, divided over `shares` devices.
    """
    return max(1, budget // (-(-rows // shares) * size))


# ---- stretches of the sequence -------------------------------------------------------------


def over_stretches(function, most, params, x, constants=()):
    """`function(params, x, constants)` of stretches of at most `most` positions, joined.

    x and constants: trees of arrays [b,l,...], constants without gradients. The result is a tree
    of arrays [b,l,...] in which every position depends on the same position of x alone.
    """
    if cut(jax.tree.leaves(x)[0].shape[1], most)[0] == 1:
        return function(params, x, constants)
    return _over_stretches(function, most, params, x, constants)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _over_stretches(function, most, params, x, constants):
    length = jax.tree.leaves(x)[0].shape[1]
    pieces, size = cut(length, most)
    inputs = _padded((x, constants), pieces * size)
    shapes = jax.eval_shape(function, params, *_stretch(inputs, 0, size))

    def piece(i, total):
        return _put(total, function(params, *_stretch(inputs, i * size, size)), i * size)

    total = jax.lax.fori_loop(0, pieces, piece, _empty(shapes, pieces * size))
    return _clipped(total, length)


def pull_over_stretches(function, most, params, x, constants, dy):
    """The result of `over_stretches` and, for its gradient `dy`, those of params and x: (y, dparams, dx)."""
    length = jax.tree.leaves(x)[0].shape[1]
    pieces, size = cut(length, most)

    def pull(x, constants, dy):
        y, back = jax.vjp(lambda params, x: function(params, x, constants), params, x)
        return y, *back(dy)

    if pieces == 1:
        return pull(x, constants, dy)
    inputs = _padded((x, constants, dy), pieces * size)
    shapes = jax.eval_shape(pull, *_stretch(inputs, 0, size))

    def piece(i, carry):
        y, dparams, dx = carry
        y1, dparams1, dx1 = pull(*_stretch(inputs, i * size, size))
        return _put(y, y1, i * size), jax.tree.map(jnp.add, dparams, dparams1), _put(dx, dx1, i * size)

    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[1])
    start = _empty(shapes[0], pieces * size), zeros, _empty(shapes[2], pieces * size)
    y, dparams, dx = jax.lax.fori_loop(0, pieces, piece, start)
    return _clipped(y, length), dparams, _clipped(dx, length)


def _stretches_forward(function, most, params, x, constants):
    return _over_stretches(function, most, params, x, constants), (params, x, constants)


def _stretches_backward(function, most, saved, dy):
    _, dparams, dx = pull_over_stretches(function, most, *saved, dy)
    return dparams, dx, None


_over_stretches.defvjp(_stretches_forward, _stretches_backward)


def _padded(tree, length):
    """Zeros behind axis 1 of every leaf [b,l,...], up to `length`."""
    extra = length - jax.tree.leaves(tree)[0].shape[1]
    if not extra:
        return tree
    return jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, extra), *((0, 0),) * (x.ndim - 2))), tree)


def _stretch(tree, start, size):
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, size, axis=1), tree)


def _empty(shapes, length):
    return jax.tree.map(lambda s: jnp.zeros((s.shape[0], length, *s.shape[2:]), s.dtype), shapes)


def _put(total, piece, start):
    return jax.tree.map(lambda t, p: jax.lax.dynamic_update_slice_in_dim(t, p, start, axis=1), total, piece)


def _clipped(tree, length):
    return jax.tree.map(lambda x: x[:, :length], tree)


# ---- heads ---------------------------------------------------------------------------------


def over_heads(function, params, x, constants):
    """Sum over groups of heads g: `function(params[g], x, constants[g])` -> (y, what was decided).

    params, constants: trees of arrays [g,...]; x [b,l,e]. Returns the sum of the first results and
    the stack [g,...] of the second. Its gradient is that of the loop; see `pull_over_heads`.
    """

    def group(total, inputs):
        y, decision = function(inputs[0], x, inputs[1])
        return total + y, decision

    return jax.lax.scan(group, jnp.zeros(x.shape, jnp.float32), (params, constants))


def pull_over_heads(function, params, x, constants, dy):
    """The sum of `over_heads` and, for its gradient `dy`, those of params and x: (y, dparams, dx)."""

    def group(carry, inputs):
        total, dx = carry
        params, constants = inputs
        y, back = jax.vjp(lambda params, x: function(params, x, constants)[0], params, x)
        dparams, more = back(dy)
        return (total + y, dx + more), dparams

    start = jnp.zeros(x.shape, jnp.float32), jnp.zeros_like(x)
    (y, dx), dparams = jax.lax.scan(group, start, (params, constants))
    return y, dparams, dx
