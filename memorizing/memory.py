"""Attention over the memory, and how it is combined with local attention (section 3).

The same queries, already scaled, meet the keys that were retrieved for them: no bias, no mask but
for entries that are not there, a softmax of its own. Gradients reach the queries through the k keys
and values of each, and nothing that is stored.
"""

from functools import partial

import jax
import jax.numpy as jnp

from memorizing import checks
from memorizing.attention import FLOOR, MASKED, Attended, softmax
from memorizing.products import einsum, over_groups

COMBINATIONS = ("gate", "joint")


def combine(kind, local, memory, gate):
    """Two Attended -> (output [b,h,l,e], share of the memory in it [b,h,l]), both float32.

    kind: 'gate' (the paper): the share is sigmoid(gate), gate [h] learned, the same for every
        token. 'joint' (the paper's first submission and later work): one softmax over local and
        retrieved keys, where the share is what the memory gets of it; the gate is not used.
    """
    checks.choice("combination", kind, COMBINATIONS)
    if kind == "gate":
        share = jnp.broadcast_to(jax.nn.sigmoid(gate)[None, :, None], local.lse.shape)
    else:
        # Rows in which neither sees anything have outputs of zero, whatever the share.
        share = jnp.where(memory.lse > FLOOR, jax.nn.sigmoid(memory.lse - local.lse), 0.0)
    return local.output * (1 - share[..., None]) + memory.output * share[..., None], share


def weights(q, keys, found, null=False):
    """Softmax of every query over what it found: float32 [b,h,l,k]; arguments as in `read`."""
    weigh = lambda q, index, real, keys: softmax(_scores(null, q, keys(index), real))[0]  # noqa: E731
    return over_groups(weigh, q, *_places(found), stores=(keys,))


def read(q, keys, values, found, null=False):
    """Attention over the entries found -> Attended.

    q [b,h,l,d], scaled; keys [b,h,M,d], values [b,h,M,e]; found: `retrieve.Found`.
    null: entries that are not there count as zero keys with zero values, as in the authors' code
        (they take part of the softmax); otherwise they are masked. An empty memory gives zeros.

    Backwards the keys and values are gathered again, so the memory needed does not grow with k.
    """
    return Attended(*_read(null, q, keys, values, *_places(found)))


def _places(found):
    return found.index, found.real


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _read(null, q, keys, values, index, real):
    return over_groups(partial(_forward, null), q, index, real, stores=(keys, values))


def _read_forward(null, q, keys, values, index, real):
    o, lse = _read(null, q, keys, values, index, real)
    return (o, lse), (q, keys, values, index, real, o, lse)


def _read_backward(null, saved, cotangents):
    q, keys, values, *rest = saved
    dq = over_groups(partial(_backward, null), q, *rest, *cotangents, stores=(keys, values))
    return dq.astype(q.dtype), None, None, None, None


_read.defvjp(_read_forward, _read_backward)


def _scores(null, q, k, real):
    """q [l,d], k [l,k,d], real [l,k] -> [l,k] float32."""
    return jnp.where(real, einsum("id,ijd->ij", q, k), 0.0 if null else MASKED)


def _forward(null, q, index, real, keys, values):
    """One memory: q [l,d], index and real [l,k] -> [l,e], [l]. keys and values take entries."""
    p, lse = softmax(_scores(null, q, keys(index), real))
    return einsum("ij,ije->ie", jnp.where(real, p, 0.0), values(index)), lse


def _backward(null, q, index, real, o, lse, do, dlse, keys, values):
    k = keys(index)
    # Where nothing was found, exp(MASKED - FLOOR) is 0.
    p = jnp.where(real, jnp.exp(_scores(null, q, k, real) - lse[:, None]), 0.0)
    dp = einsum("ie,ije->ij", do, values(index))
    ds = p * (dp - jnp.sum(do * o, axis=-1, keepdims=True) + dlse[:, None])
    return einsum("ij,ijd->id", ds, k)
