"""What the machine says about its devices and their memory. Where arrays lie on them: `launch.sharding`."""

import ctypes
import functools
import os
import resource
import sys

import jax


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
    return f"{name}, {cores()} cores"


def cores():
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def compiler_options(platform):
    """XLA's options for a training step on a platform, as ``jax.jit`` takes them; None for its defaults.

    On processors without its library of fused products (YNN), whose buffers stand in no account of memory: a Reformer's
    step on 1,048,576 tokens held 21 GiB with it and 12.4 without, and no step that was measured is slower without.
    """
    if platform != "cpu":
        return None
    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such library
        return None
    return options


def trim_memory():
    """Gives memory that was freed, such as a compiler's, back to the system, where the C library can (glibc)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library; Windows has no process-wide handle
        pass


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
