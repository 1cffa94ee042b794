"""A memory whose entries are spread over devices: every device searches its own, the results are merged.

The merge is explicit and exact: sorting along an axis that is spread over devices has gone wrong on
some backends, and an automatic partition would first bring the whole memory to every device.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from memorizing import retrieve


def find(search, k, q, keys, size, mesh, axis):
    """`retrieve.find` with the entries of keys [b,h,M,d] split over a mesh axis; the results are on every device.

    With exact searches the result is that of one device; others find more, since each device brings
    k candidates. M must be a multiple of the axis, and k at most the entries of one device.
    """
    devices, M = mesh.shape[axis], keys.shape[2]
    if M % devices or k > M // devices:
        raise ValueError(
            f"{M} entries over {devices} devices: M must be a multiple of the devices, and k = {k} at most their share"
        )
    split, whole = PartitionSpec(None, None, axis), PartitionSpec()
    # The results are equal on all devices, which the type check of shard_map cannot see after a gather.
    search_all = jax.shard_map(
        partial(_one_device, search, k, axis),
        mesh=mesh,
        in_specs=(whole, split, whole),
        out_specs=whole,
        check_vma=False,
    )
    return search_all(jax.lax.stop_gradient(q), jax.lax.stop_gradient(keys), size)


def _one_device(search, k, axis, q, keys, size):
    first = jax.lax.axis_index(axis) * keys.shape[2]
    found = retrieve.find(search, k, q, keys, jnp.clip(size - first, 0, keys.shape[2]))
    gather = partial(jax.lax.all_gather, axis_name=axis, axis=3, tiled=True)
    index, score, real = (gather(x) for x in found._replace(index=found.index + first))
    score, at = jax.lax.top_k(score, k)
    index, real = (jnp.take_along_axis(x, at, axis=3) for x in (index, real))
    return retrieve.Found(index, score, real)
