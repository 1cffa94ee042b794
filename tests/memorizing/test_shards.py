"""Memories on several devices give what one device gives: finding, reading (with gradients), writing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from oracles import draw

from memorizing import memory, retrieve, ring, shards
from memorizing.retrieve import Search

B, H, L, D, M, K = 2, 2, 4, 4, 16, 4
SEARCH = Search("sorted")


def layout(*axes):
    """Slots, heads and entries over two devices each, those that are named."""
    mesh = Mesh(np.array(jax.devices()[: 2 ** len(axes)]).reshape((2,) * len(axes)), axes)
    there = lambda name: name if name in axes else None  # noqa: E731
    return shards.Layout(mesh, ("slots",) if "slots" in axes else (), there("heads"), there("entries"))


LAYOUTS = [layout("slots"), layout("entries"), layout("slots", "entries", "heads")]
names = lambda one: "+".join(one.mesh.axis_names)  # noqa: E731


@pytest.mark.parametrize("null", [False, True], ids=["masked", "null"])
@pytest.mark.parametrize("place", LAYOUTS, ids=names)
def test_finding_and_reading_with_gradients(place, null):
    q, keys, values, to = (draw(B, H, n, D, seed=s) for s, n in enumerate((L, M, M, L)))

    def attend(q, size, place):
        found = shards.find(place, SEARCH, K, q, keys, size)
        read = shards.read(place, q, keys, values, found, null)
        return jnp.sum(read.output * to) + jnp.sum(jnp.sin(jnp.maximum(read.lse, -10.0))), (found, read)

    work = jax.jit(jax.value_and_grad(attend, has_aux=True), static_argnums=2)
    for size in (np.array([16, 9]), np.array([2, 0])):  # full, half, fewer than k, none
        (_, (found, read)), slope = work(q, size, place)
        (_, (wanted, plain)), expected = work(q, size, None)
        np.testing.assert_array_equal(found.real, wanted.real)
        np.testing.assert_array_equal(np.where(found.real, found.index, 0), np.where(wanted.real, wanted.index, 0))
        np.testing.assert_allclose(read.output, plain.output, atol=1e-5)
        np.testing.assert_allclose(read.lse, plain.lse, atol=1e-5, rtol=1e-6)
        np.testing.assert_allclose(slope, expected, atol=1e-5)


@pytest.mark.parametrize("place", LAYOUTS, ids=names)
def test_writing_goes_round_the_ring(place):
    """Seven segments with padding into a ring of 16 entries: every entry, and the count, as on one device."""
    alone = there = ring.empty(B, H, M, D)
    write = jax.jit(shards.write, static_argnums=0)
    for step in range(7):
        k, v = draw(B, H, L, D, seed=step), draw(B, H, L, D, seed=99 - step)
        real = np.arange(L)[None] < np.array([[4], [step % 5]])
        alone, there = write(None, alone, k, v, real), write(place, there, k, v, real)
        jax.tree.map(np.testing.assert_array_equal, there, alone)
    assert there.written.tolist() == [7 * 4, sum(step % 5 for step in range(7))]


def test_joining_softmaxes_is_the_softmax_of_all():
    q, keys, values = (draw(B, H, n, D, seed=s) for s, n in enumerate((L, M, M)))
    size = np.array([M, M])
    found = retrieve.find(SEARCH, M, q, keys, size)
    whole = memory.read(q, keys, values, found)
    parts = [memory.read(q, keys, values, found._replace(real=found.index % 3 == n)) for n in range(3)]
    joined = shards.join(jax.tree.map(lambda *xs: jnp.stack(xs), *parts))
    np.testing.assert_allclose(joined.output, whole.output, atol=1e-6)
    np.testing.assert_allclose(joined.lse, whole.lse, rtol=1e-6)


def test_what_cannot_be_split_is_said():
    with pytest.raises(ValueError, match="3 heads over 2 devices: the devices must divide the heads"):
        layout("heads").check(3, M, K)
    with pytest.raises(ValueError, match="15 entries over 2 devices"):
        layout("entries").check(H, 15, K)
