"""The ring of stored pairs, against lists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import draw

from memorizing import ring

B, H, M, L, D = 3, 2, 8, 4, 3


class Lists:
    """What a memory is: for every slot a list of pairs, cut to the last M; entry n mod M holds pair n."""

    def __init__(self):
        self.pairs = [[] for _ in range(B)]

    def step(self, k, v, start, real):
        for b in range(B):
            if start[b]:
                self.pairs[b] = []
            self.pairs[b] += [(k[b, :, i], v[b, :, i]) for i in range(L) if real[b, i]]

    def check(self, memory):
        sizes = np.asarray(ring.size(memory))
        for b, pairs in enumerate(self.pairs):
            assert memory.written[b] == len(pairs)
            assert sizes[b] == min(len(pairs), M)
            for n in range(max(0, len(pairs) - M), len(pairs)):
                np.testing.assert_array_equal(memory.keys[b, :, n % M], pairs[n][0])
                np.testing.assert_array_equal(memory.values[b, :, n % M], pairs[n][1])


@jax.jit
def step(memory, k, v, start, real):
    return ring.write(ring.reset(memory, start), k, v, real)


def test_ring_holds_the_last_pairs_of_each_slots_document_over_many_laps():
    memory, lists = ring.empty(B, H, M, D), Lists()
    for n in range(9):
        k, v = draw(B, H, L, D, seed=n), draw(B, H, L, D, seed=100 + n)
        start = np.array([n == 0, n in (0, 3), n == 5])
        real = np.ones((B, L), bool)
        real[1, 2:] = n != 2  # a last segment, padded at its end
        real[2] = n % 3 != 1  # sometimes nothing but padding
        real[0, 1] = n != 4  # a gap: pairs stay in order without it
        memory = step(memory, k, v, start, real)
        lists.step(k, v, start, real)
        lists.check(memory)
    assert memory.written[0] > 3 * M  # more than three laps


def test_writing_every_position_counts_padding_too():
    memory = ring.write(ring.empty(B, H, M, D), draw(B, H, L, D), draw(B, H, L, D))
    np.testing.assert_array_equal(memory.written, L)


def test_reset_changes_one_slots_number_and_nothing_else():
    k = draw(B, H, L, D)
    full = ring.write(ring.write(ring.empty(B, H, M, D), k, k), k, k)
    one = ring.reset(full, np.array([0, 1, 0]))
    np.testing.assert_array_equal(one.written, [2 * L, 0, 2 * L])
    np.testing.assert_array_equal(one.keys, full.keys)
    np.testing.assert_array_equal(ring.size(one), [M, 0, M])


def test_age_counts_what_was_written_afterwards():
    memory = ring.Ring(jnp.zeros((B, H, M, D)), jnp.zeros((B, H, M, D)), jnp.array([3, 8, 21]))
    index = np.broadcast_to(np.arange(M), (B, H, 1, M))
    ages = np.asarray(ring.age(memory, index))
    for b, written in enumerate([3, 8, 21]):
        for n in range(max(0, written - M), written):
            assert (ages[b, :, 0, n % M] == written - 1 - n).all()


def test_half_precision_store_rounds_pairs_and_passes_no_gradient():
    def stored(k):
        memory = ring.write(ring.empty(B, H, M, D, jnp.bfloat16), k, 2 * k)
        assert memory.keys.dtype == memory.values.dtype == jnp.bfloat16
        return jnp.sum(memory.keys.astype(jnp.float32)[:, :, :L] ** 2), memory

    k = draw(B, H, L, D)
    gradient, memory = jax.grad(stored, has_aux=True)(k)
    np.testing.assert_array_equal(gradient, 0)
    np.testing.assert_array_equal(memory.keys[:, :, :L], k.astype(jnp.bfloat16))


def test_a_segment_longer_than_the_memory_is_refused():
    with pytest.raises(ValueError, match="segment of 12 does not fit into a memory of 8"):
        ring.write(ring.empty(B, H, M, D), draw(B, H, 12, D), draw(B, H, 12, D))
    with pytest.raises(ValueError, match="capacity is 0"):
        ring.empty(B, H, 0, D)
