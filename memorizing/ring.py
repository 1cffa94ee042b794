"""The memory: the last M (key, value) pairs of each slot's document, in a ring (section 3).

A memory is a value: it goes into a step as an argument and comes out as a result. A slot's memory
is reset where a document begins, then read, then written, so a segment never finds itself:

    memory = ring.reset(memory, document_start)
    found = retrieve.find(search, k, q, memory.keys, ring.size(memory))
    memory = ring.write(memory, k, v, real)

Which entries count is told by `written` alone; a reset clears nothing but that number. Nothing that
is stored has a gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from memorizing import checks


class Ring(NamedTuple):
    """The memories of one layer, one for every batch slot and head."""

    keys: jax.Array  # [b,h,M,d]
    values: jax.Array  # [b,h,M,e]
    written: jax.Array  # [b] int32, pairs written since the slot's document began; pair n is entry n mod M

    @property
    def capacity(self):
        """M."""
        return self.keys.shape[2]


def empty(batch_size, heads, capacity, width, dtype=jnp.float32):
    """A ring of `capacity` entries of which none counts; bfloat16 takes half the space."""
    checks.positive("capacity", capacity)
    # Two arrays, not one twice: a state that is donated must not hold a buffer two times.
    keys, values = (jnp.zeros((batch_size, heads, capacity, width), dtype) for _ in range(2))
    return Ring(keys, values, jnp.zeros((batch_size,), jnp.int32))


def size(ring):
    """Entries that count, int32 [b]: 0 ... size - 1."""
    return jnp.minimum(ring.written, ring.capacity)


def reset(ring, start):
    """Forgets the slots where start [b] (bool, or int with 1 for true) says that a document begins."""
    return ring._replace(written=jnp.where(start.astype(bool), 0, ring.written))


def write(ring, k, v, real=None, *, first=0, capacity=None):
    """Appends a segment: k [b,h,l,d], v [b,h,l,e]; the oldest entries make room.

    real: bool [b,l], False for padding, which takes no entry. None writes every position, as the
        authors' code does; then the padding of a last segment fills entries with keys of padding.
    first, capacity: this is only the part from entry `first` on of a ring of that many entries (`shards`).
    """
    b, length = k.shape[0], k.shape[2]
    capacity = ring.capacity if capacity is None else capacity
    if length > capacity:
        raise ValueError(
            f"a segment of {length} does not fit into a memory of {capacity} entries;"
            " make the memory a multiple of the segment"
        )
    k, v, real = jnp.asarray(k), jnp.asarray(v), jnp.ones((b, length), bool) if real is None else jnp.asarray(real)
    count = real.sum(1, dtype=jnp.int32)
    order = jnp.argsort(~real, axis=1, stable=True)[:, None, :, None]  # the pairs that count, first and in order
    width = min(length, ring.capacity)
    new = [jnp.take_along_axis(jax.lax.stop_gradient(x), order, axis=2) for x in (k, v)]
    new = [jnp.pad(x.astype(ring.keys.dtype), ((0, 0), (0, 0), (width, width), (0, 0))) for x in new]
    begin = ring.written % capacity - first

    def store(slot, arrays):
        for start in (begin[slot], begin[slot] - capacity):  # what passes the end goes on at the beginning
            arrays = tuple(_put(old, x, slot, start, count[slot], width) for old, x in zip(arrays, new, strict=True))
        return arrays

    keys, values = jax.lax.fori_loop(0, b, store, (ring.keys, ring.values))
    return Ring(keys, values, ring.written + count)


def _put(store, new, slot, start, count, width):
    """A slot of store [b,h,M,d] with the first `count` pairs of new from entry `start` on, as far as it reaches.

    new [b,h,width+l+width,d]: the pairs with room before and behind. All are slices: gathers and
    scatters would have whole memories copied into another layout.
    """
    place = jnp.clip(start, 0, store.shape[2] - width)
    row = place + jnp.arange(width, dtype=jnp.int32) - start
    there = (row >= 0) & (row < count)
    shape = (1, store.shape[1], width, store.shape[3])
    fresh = jax.lax.dynamic_slice(new, (slot, 0, place - start + width, 0), shape)
    old = jax.lax.dynamic_slice(store, (slot, 0, place, 0), shape)
    window = jnp.where(there[None, None, :, None], fresh, old)
    return jax.lax.dynamic_update_slice(store, window, (slot, 0, place, 0))


def age(ring, index):
    """How many pairs were written after an entry: index int32 [b,h,l,k] -> int32 [b,h,l,k], 0 for the newest."""
    last = ring.written[:, None, None, None] - 1
    return (last - index) % ring.capacity
