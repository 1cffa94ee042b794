"""Devices: the mesh, where each array lives, and what the machine says about itself."""

import math
import re
import resource
import sys

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

DATA = "data"


def mesh_for(batch_size):
    """A mesh with one axis, ``data``, of as many devices as divide ``batch_size`` evenly.

    With several processes every device must take part, so there the batch has to be a multiple of their number.
    """
    devices = jax.devices()
    count = math.gcd(batch_size, len(devices))
    if jax.process_count() > 1 and count < len(devices):
        raise ValueError(f"batch size {batch_size} is not a multiple of the {len(devices)} devices of all processes")
    return Mesh(np.array(devices[:count]), (DATA,), axis_types=(AxisType.Auto,))


def batch_sharding(mesh):
    """Split over the leading axis (examples)."""
    return NamedSharding(mesh, PartitionSpec(DATA))


def batch_sharding_like(params, batch_size):
    """A sharding for batches that meet ``params`` in one program, so on the very same devices.

    Rows are split over them where they divide evenly, else every device gets all rows.
    """
    devices = sorted(jax.tree.leaves(params)[0].sharding.device_set, key=lambda device: device.id)
    mesh = Mesh(np.array(devices), (DATA,), axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec(DATA if batch_size % len(devices) == 0 else None))


def put_batch(batch, sharding):
    """Moves a host batch onto the devices; with several processes each gives its own rows."""
    return {name: jax.make_array_from_process_local_data(sharding, value) for name, value in batch.items()}


def state_shardings(shapes, mesh, rules):
    """A sharding for each leaf of a state tree.

    Args:
      shapes: tree of things with a ``shape``.
      mesh: from ``mesh_for``.
      rules: ``"replicate"``, ``"fsdp"``, or a tuple of (regular expression, axis names) pairs. The expression is
        searched in the leaf's path ('params/layers/attention/query'); the first match decides. A leaf whose shape does
        not fit the axes it is given is replicated, so one rule serves parameters and optimiser statistics.
    """
    if isinstance(rules, str) and rules not in ("replicate", "fsdp"):
        raise ValueError(f"sharding is {rules!r}; it must be 'replicate', 'fsdp', or (expression, axes) pairs")

    def spec(path, leaf):
        if rules == "replicate" or not leaf.shape:
            return PartitionSpec()
        if rules == "fsdp":
            size = mesh.shape[DATA]
            axes = [i for i in np.argsort(leaf.shape)[::-1] if leaf.shape[i] % size == 0]
            return PartitionSpec(*(DATA if axes and i == axes[0] else None for i in range(len(leaf.shape))))
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        axes = next((axes for pattern, axes in rules if re.search(pattern, name)), ())
        fits = len(axes) == len(leaf.shape) and all(
            axis is None or n % mesh.shape[axis] == 0 for axis, n in zip(axes, leaf.shape, strict=True)
        )
        return PartitionSpec(*axes) if fits else PartitionSpec()

    return jax.tree_util.tree_map_with_path(lambda path, leaf: NamedSharding(mesh, spec(path, leaf)), shapes)


def describe():
    """Platform, kind and number of devices, as a record stores them."""
    device = jax.devices()[0]
    return {"platform": device.platform, "kind": _kind(device), "count": jax.device_count()}


def _kind(device):
    if device.platform != "cpu":
        return device.device_kind
    try:  # a CPU calls itself just "cpu" in JAX; the model is what a reader wants to know
        with open("/proc/cpuinfo") as lines:
            name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = device.device_kind
    return f"{name}, {len(_cores())} cores"


def _cores():
    import os

    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def reset_peak_memory():
    """Starts a new measurement of this process's peak memory, where the system allows it (Linux)."""
    try:
        with open("/proc/self/clear_refs", "w") as handle:
            handle.write("5")
    except OSError:
        pass  # the peak then covers the whole process, which only ever overstates a run


def peak_memory_bytes():
    """Peak bytes in use: of the accelerator's own memory where it tells, else resident memory of this process."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        factor = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * factor
