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
    if real is None:
        real = jnp.ones((b, length), bool)
    rank = jnp.cumsum(real, axis=1, dtype=jnp.int32)
    # Padding, and what other parts hold, goes to an entry that does not exist, which a scatter drops.
    entry = (ring.written[:, None] + rank - 1) % capacity - first
    entry = jnp.where(real & (entry >= 0) & (entry < ring.capacity), entry, ring.capacity)

    def store(old, new):
        new = jax.lax.stop_gradient(new).astype(old.dtype)
        put = jax.vmap(lambda old, new, entry: old.at[:, entry].set(new, mode="drop"))
        return put(old, new, entry)

    return Ring(store(ring.keys, k), store(ring.values, v), ring.written + rank[:, -1])


def age(ring, index):
    """How many pairs were written after an entry: index int32 [b,h,l,k] -> int32 [b,h,l,k], 0 for the newest."""
    last = ring.written[:, None, None, None] - 1
    return (last - index) % ring.capacity
