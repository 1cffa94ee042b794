"""Trained parameters in another model: a larger memory, a memory for a plain model, or none.

The paper continues training with a larger memory (Table 5) and gives one to a trained 1B model (Figure 6).
A larger memory needs no new parameters: `dataclasses.replace(model, memory=65536)` takes them as they
are, and `enlarge` takes along what slots in the middle of a document remember.
"""

import dataclasses

import jax
import jax.numpy as jnp

from memorizing import ring

# What may differ without changing the shape or the meaning of shared parameters.
FREE = (
    *("memory", "memory_layers", "neighbours", "search", "memory_dtype", "combination", "cache", "strict"),
    *("null_keys", "sharpness", "store_padding", "segment", "dropout", "attention_dropout", "dtype", "remat"),
    "layout",
)


def convert(params, source, target, gate=0.0):
    """The parameters of Model `source` in the shape of `target`.

    Memory layers may be added, moved or taken away: all layers have the same parameters, but for the
    gates of memory layers. New gates begin at `gate` (0: half memory, as in training from the start);
    gates of layers that lose their memory are dropped.

    Raises ValueError for models that differ in anything else than FREE.
    """
    for one in dataclasses.fields(source):
        here, there = getattr(source, one.name), getattr(target, one.name)
        if one.name not in FREE and here != there:
            raise ValueError(
                f"{one.name} is {here!r} in the trained model and {there!r} in the new one; only these may"
                f" change: {', '.join(FREE)}"
            )
    if source.bias == "local" and _remember(source) != _remember(target):
        raise ValueError(
            "with bias='local' memory layers have no position bias, so a layer can neither get nor lose a memory"
        )
    layers = [
        jax.tree.map(lambda x, i=i: x[i], stack)
        for (n, _), stack in zip(source.runs, params["layers"], strict=True)
        for i in range(n)
    ]
    for layer, remembers in zip(layers, _remember(target), strict=True):
        if remembers and target.combination == "gate":
            layer.setdefault("gate", jnp.full((target.heads,), gate, jnp.float32))
        else:
            layer.pop("gate", None)
    stacks, rest = [], iter(layers)
    for n, _ in target.runs:
        stacks.append(jax.tree.map(lambda *xs: jnp.stack(xs), *[next(rest) for _ in range(n)]))
    return {**params, "layers": tuple(stacks)}


def _remember(model):
    """For every layer, whether it has a memory."""
    return [remembers for n, remembers in model.runs for _ in range(n)]


def enlarge(state, capacity):
    """A state whose memories have `capacity` entries and hold what they held; the caches stay.

    Raises ValueError if the memories are larger than that.
    """
    return state._replace(rings=tuple(_enlarge(one, capacity) for one in state.rings))


def _enlarge(old, capacity):
    if capacity < old.capacity:
        raise ValueError(
            f"the memory has {old.capacity} entries, which do not fit into {capacity}; begin with a new state"
        )
    # Numbered anew from the oldest pair that is left: a larger ring must not count entries that the
    # smaller one has already overwritten.
    count = ring.size(old)
    entry = (old.written[:, None] - count[:, None] + jnp.arange(old.capacity)[None]) % old.capacity
    grow = ((0, 0), (0, 0), (0, capacity - old.capacity), (0, 0))
    keys, values = (jnp.pad(jnp.take_along_axis(x, entry[:, None, :, None], axis=2), grow) for x in old[:2])
    return ring.Ring(keys, values, count)
