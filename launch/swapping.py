"""Parameters and optimiser state in the host's memory while training (the Reformer's section 3, `Experiment.swap`).

The accelerator computes loss and gradients from parameters that lie in the host's pinned memory: models that are
``swappable`` fetch one period of layers at a time and put its gradients back there. The optimiser is a program of
the CPU, which owns its state: it needs a few operations per parameter, hardly more than the copy would, and only all
of it together is what any optax transformation may ask for (a global norm, say). So depth is bounded by the host.

Parameters keep whatever sharding they have; the optimiser's state is whole, on the CPU of the one process there may be.
Equality is tested on a CPU, where both memories are one; what is said of memory was read from programs compiled for a
TPU (`reformer.swapping`). Speed, and how much of the copying hides behind computing, were not measured: no accelerator
was at hand. `repro profile training --swap` does that.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from launch.errors import ConfigError

HOST = "pinned_host"


def wanted(experiment, note=lambda text: None):
    """Whether to swap: as the experiment asks, unless the machine has nowhere to swap to, which is noted.

    Raises ``ConfigError`` with several processes.
    """
    if not experiment.swap:
        return False
    if reason := one_memory():
        note(f"swap: {reason}: swapping changes nothing here, so parameters stay where they are")
        return False
    if jax.process_count() > 1:
        raise ConfigError(
            f"Experiment.swap is True, but there are {jax.process_count()} processes: the optimiser needs all "
            "gradients in one; start one process, or set swap to False and sharding to 'fsdp'"
        )
    return True


def one_memory():
    """Why there is no second memory to swap to; None if there is one."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return "CPU has one memory"
    return None if HOST in {m.kind for m in device.addressable_memories()} else f"{device} offers no {HOST} memory"


def placed(shardings):
    """The shardings of a training state, with parameters in the host's memory and the optimiser's state on the CPU."""
    return shardings._replace(
        params=jax.tree.map(lambda sharding: sharding.with_memory_kind(HOST), shardings.params),
        optimizer=jax.tree.map(lambda _: cpu(), shardings.optimizer),
    )


def initial(create, shardings):
    """The state that ``create()`` makes, made on the CPU: it need not fit into the accelerator."""
    return jax.device_put(jax.jit(create, out_shardings=cpu())(), shardings)


def update_function(gradient, descend, shardings, accumulate):
    """An update of a state in ``placed`` shardings; it takes and returns what the trainer's own does.

    Args:
      gradient: (params, batch, model state, key) -> ((gradients, sums), model state), of the accelerator.
      descend: (params, optimizer state, step, (gradients, sums)) -> the new first three, and the sums; see ``on_host``.
      shardings: of the state. accumulate: micro-batches; their gradients are added on the CPU.
    """

    if jax.tree.leaves(shardings.model):
        raise ValueError("a model that carries state from batch to batch cannot be swapped yet; set swap to False")

    def micro(params, batch, key, step, index):
        key = jax.random.fold_in(key, step)
        if accumulate > 1:
            key = jax.random.fold_in(key, index)
            batch = jax.tree.map(lambda x: x.reshape(-1, accumulate, *x.shape[1:])[:, index], batch)
        return gradient(params, batch, shardings.model, key)[0]

    micro = jax.jit(micro, out_shardings=(shardings.params, None))
    add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b), donate_argnums=0)
    descend = on_host(descend)

    def update(state, batch, key):
        parts = (_to_cpu(micro(state.params, batch, key, state.step, index)) for index in range(accumulate))
        params, optimizer, step, sums = descend(state.params, state.optimizer, state.step, functools.reduce(add, parts))
        return state._replace(step=jax.device_put(step, shardings.step), params=params, optimizer=optimizer), sums

    return update


def on_host(descend):
    """The same function of (params, optimizer state, ...) as a CPU program, to which the optimiser's state is given up.

    New parameters go where the old ones were; all else stays on the CPU.
    """
    program = jax.jit(descend, donate_argnums=(0, 1))

    def run(params, optimizer, *rest):
        new, *others = program(*_to_cpu((params, optimizer, *rest)))
        return jax.device_put(new, jax.tree.map(lambda x: x.sharding, params)), *others

    return run


def _to_cpu(tree):
    """In two moves, first to the device and then between its memories: `device_put` cannot do both on one device."""
    there = cpu()
    near = jax.tree.map(lambda x: jax.device_put(x, there.with_memory_kind(x.sharding.memory_kind)), tree)
    return jax.device_put(near, there)


def cpu():
    """The CPU as a place for whole arrays. Raises ``ConfigError`` if JAX has been told to leave it out."""
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ConfigError(f"swapping needs the CPU beside the accelerator, JAX_PLATFORMS=...,cpu: {error}") from None
    return NamedSharding(Mesh(np.array([device]), ("data",), axis_types=(AxisType.Auto,)), PartitionSpec())
