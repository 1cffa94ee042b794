"""Memories on several devices: each device searches, reads and writes its own; what they find is merged exactly.

Slots may be split, and heads: then nothing has to be merged. Entries may be split too, so that one memory is larger
than a device: every device looks for the k best of its part, the best of all are kept, and each gives the softmax over
those that it holds. All that is explicit: sorting along an axis that is spread over devices has gone wrong on some
backends, and an automatic partition would bring whole memories to every device, or let one slot's search wait for all.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from memorizing import memory, retrieve, ring
from memorizing.attention import FLOOR, Attended


@dataclass(frozen=True)
class Layout:
    """Names of the axes of `mesh` over which slots (several), heads and entries are split; () and None for not."""

    mesh: Any
    slots: tuple = ()
    heads: str | None = None
    entries: str | None = None

    @property
    def parts(self):
        """Devices that share the entries of a memory."""
        return self.mesh.shape[self.entries] if self.entries else 1

    @property
    def slot_parts(self):
        """Groups of devices that slots are split over."""
        return self.mesh.size // (self.parts * (self.mesh.shape[self.heads] if self.heads else 1)) if self.slots else 1

    def check(self, heads, capacity, k):
        """Raises ValueError unless heads and entries can be split evenly, with k entries for each device."""
        share = self.mesh.shape[self.heads] if self.heads else 1
        if heads % share:
            raise ValueError(f"{heads} heads over {share} devices: the devices must divide the heads")
        if capacity % self.parts or k > capacity // self.parts:
            raise ValueError(
                f"{capacity} entries over {self.parts} devices: M must be a multiple of the devices, and k = {k} at "
                "most their share"
            )

    def run(self, function, inputs, outputs):
        """`function` on every device. inputs, outputs: for each array which of its axes are split, see `_spec`."""
        specs = jax.tree.map(self._spec, (inputs, outputs))
        # Results are equal along the axes that they do not name, which the type check cannot see after a gather.
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)

    def _spec(self, kind):
        """'b' for [b,...], 'bh' for [b,h,...], 'bhM' for [b,h,M,...], 'nbh' for a part of each device, [n,b,h,...]."""
        axes = {"b": self.slots or None, "h": self.heads, "M": self.entries, "n": self.entries}
        return PartitionSpec(*(axes[letter] for letter in kind))

    def first(self, keys):
        """Which entry of the whole memory is the first one of this device's keys [b,h,M,d]."""
        return jax.lax.axis_index(self.entries) * keys.shape[2] if self.entries else 0


def find(layout, search, k, q, keys, size):
    """`retrieve.find` on the devices of a layout (None: as it is).

    With exact searches the result is that of one device; others find more, since each device brings k candidates.
    """
    if layout is None:
        return retrieve.find(search, k, q, keys, size)
    layout.check(q.shape[1], keys.shape[2], k)

    def here(q, keys, size):
        if layout.parts == 1:
            return retrieve.find(search, k, q, keys, size)
        first = layout.first(keys)
        found = retrieve.find(search, k, q, keys, jnp.clip(size - first, 0, keys.shape[2]))
        gather = partial(jax.lax.all_gather, axis_name=layout.entries, axis=3, tiled=True)
        index, score, real = (gather(x) for x in found._replace(index=found.index + first))
        score, at = jax.lax.top_k(score, k)
        index, real = (jnp.take_along_axis(x, at, axis=3) for x in (index, real))
        return retrieve.Found(index, score, real)

    spread = layout.run(here, ("bh", "bhM", "b"), retrieve.Found("bh", "bh", "bh"))
    return spread(jax.lax.stop_gradient(q), jax.lax.stop_gradient(keys), size)


def read(layout, q, keys, values, found, null=False):
    """`memory.read` on the devices of a layout: each reads the entries that it holds, and the softmaxes are joined."""
    if layout is None:
        return memory.read(q, keys, values, found, null)

    def here(q, keys, values, found):
        if layout.parts == 1:
            return memory.read(q, keys, values, found, null)
        index = found.index - layout.first(keys)
        mine = found.real & (index >= 0) & (index < keys.shape[2])
        held = found._replace(index=jnp.clip(index, 0, keys.shape[2] - 1), real=mine)
        return jax.tree.map(lambda x: x[None], memory.read(q, keys, values, held))

    kind = "bh" if layout.parts == 1 else "nbh"
    spread = layout.run(here, ("bh", "bhM", "bhM", retrieve.Found("bh", "bh", "bh")), Attended(kind, kind))
    parts = spread(q, keys, values, found)
    if layout.parts == 1:
        return parts
    if null:  # entries that are not there: zero keys with zero values, counted once
        missing = jnp.sum(~found.real, axis=-1).astype(jnp.float32)
        nothing = jnp.where(missing > 0, jnp.log(jnp.maximum(missing, 1.0)), FLOOR)
        parts = Attended(
            jnp.concatenate([parts.output, jnp.zeros_like(parts.output[:1])]),
            jnp.concatenate([parts.lse, nothing[None]]),
        )
    return join(parts)


def join(parts):
    """One Attended of those over several sets of keys: outputs [n,b,h,l,e], normalisers [n,b,h,l]."""
    top = jax.lax.stop_gradient(parts.lse.max(0))
    share = jnp.exp(parts.lse - top[None])
    total = share.sum(0)
    output = jnp.sum(parts.output * (share / total[None])[..., None], axis=0)
    return Attended(output, top + jnp.log(total))


def write(layout, memories, k, v, real):
    """`ring.write` on the devices of a layout: each stores what belongs to its entries."""
    if layout is None:
        return ring.write(memories, k, v, real)
    capacity = memories.capacity

    def here(memories, k, v, real):
        return ring.write(memories, k, v, real, first=layout.first(memories.keys), capacity=capacity)

    kinds = ring.Ring("bhM", "bhM", "b")
    return layout.run(here, (kinds, "bh", "bh", "b"), kinds)(memories, k, v, real)
