"""Where a run's arrays lie: a mesh of devices, and rules by path. The same on CPUs, GPUs and TPUs.

Four axes of devices, each of size 1 unless `Sharding` says otherwise:

    data     rows of the batch; parameters are alike on all
    fully    rows of the batch, and a part of every parameter and of the optimiser's state: a layer fetches the
             other parts when it runs
    entries  a part of every memory, with an exact merge of what each part finds
    tensor   heads, hidden features and ids of the vocabulary

The state that a model carries from batch to batch (caches, memories) lies with the rows that it belongs to. Rules
decide where things lie and what is sent, never what is computed: numbers change by rounding at most.
"""

import functools
import math
import re
from dataclasses import dataclass

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = DATA, FULLY, ENTRIES, TENSOR = "data", "fully", "entries", "tensor"
ROWS = (DATA, FULLY)
NAMED = ("replicate", "fsdp")

# Path -> axes of the last dimensions; layers that are stacked have one more in front.
PARAMETERS = (
    (r"/(query|key|value)$", (None, TENSOR, None)),  # [e,h,d]
    (r"/head/out$", (None, TENSOR)),  # [e,v]
    (r"/out$", (TENSOR, None, None)),  # [h,d,e]
    (r"/in/kernel$", (None, TENSOR)),  # [e,f]
    (r"/in/bias$", (TENSOR,)),
    (r"/out/kernel$", (TENSOR, None)),  # [f,e]
    (r"/(embedding|tokens)$", (TENSOR, None)),  # [v,e]
)
STATE = (
    (r"/rings/\d+/(keys|values)$", (ROWS, TENSOR, ENTRIES, None)),  # [b,h,M,d]
    (r"/waiting/", (ROWS, TENSOR, None, None)),  # [b,h,l,d]
    (r"/caches/", (ROWS, None, TENSOR, None, None)),  # [b,n,h,W,d]
)


@dataclass(frozen=True)
class Sharding:
    """How a run is spread over devices.

    Attributes:
      fully: devices that share parameters and optimiser state; 0 for all there are.
      entries: devices that share each memory. tensor: devices that share heads, hidden features and vocabulary.
        What is left over is data parallel.
      rules: (regular expression, axis names) pairs, tried before those above. The expression is searched in the path of
        a leaf ('params/layers/0/query', 'optimizer/0/mu/...'), the axes are those of all its dimensions.
    """

    fully: int = 1
    entries: int = 1
    tensor: int = 1
    rules: tuple = ()

    def __post_init__(self):
        for name, least in (("fully", 0), ("entries", 1), ("tensor", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"Sharding.{name} is {value!r}; it must be a whole number of at least {least}")
        # gin writes lists; a setting must be hashable.
        object.__setattr__(self, "rules", tuple((pattern, tuple(axes)) for pattern, axes in self.rules))
        unknown = {axis for _, axes in self.rules for axis in axes if axis not in (*AXES, None)}
        if unknown:
            raise ValueError(f"Sharding.rules has the axes {sorted(map(str, unknown))}; known are {', '.join(AXES)}")

    def mesh(self, batch_size, devices=None):
        """A mesh of as many devices as divide ``batch_size`` evenly; the others stay idle.

        Args:
          batch_size: rows that are computed at a time. devices: those there are, instead of JAX's.

        Raises:
          ValueError: the axes do not fit the devices, or with several processes some device would stay idle.
        """
        devices = list(devices or jax.devices())
        inner = self.entries * self.tensor
        count = math.gcd(batch_size, len(devices) // inner) if len(devices) % inner == 0 else 0
        fully = self.fully or count
        if not count or count % fully:
            raise ValueError(
                f"{self} does not fit {len(devices)} devices and {batch_size} rows: entries x tensor must divide the "
                "devices, and fully what is left of them for rows"
            )
        if jax.process_count() > 1 and count * inner < len(devices):
            raise ValueError(
                f"batch size {batch_size} is not a multiple of the {len(devices) // inner} devices of all processes"
            )
        shape = (count // fully, fully, self.entries, self.tensor)
        return Mesh(np.array(devices[: count * inner]).reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES))

    def of_state(self, shapes, mesh):
        """A sharding for each leaf of a training state: step, params, optimizer, model.

        A dimension that its axis does not divide stays whole, so one rule serves parameters and statistics of them.
        """

        def place(path, leaf):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            return NamedSharding(mesh, PartitionSpec(*self._axes(name, leaf.shape, mesh)))

        return jax.tree_util.tree_map_with_path(place, shapes)

    def _axes(self, name, shape, mesh):
        for pattern, axes in self.rules:
            if re.search(pattern, name):
                return _fitting(axes, shape, mesh) if len(axes) == len(shape) else ()
        mine = name.startswith("model/")
        found = next((axes for pattern, axes in (STATE if mine else PARAMETERS) if re.search(pattern, name)), ())
        if mine:
            return _fitting(found if len(found) == len(shape) else (ROWS,)[: len(shape)], shape, mesh)
        spare = len(shape) - len(found)
        axes = list(_fitting((None,) * spare + found, shape, mesh)) if spare in (0, 1) else [None] * len(shape)
        size = mesh.shape[FULLY]
        # The largest dimension: of stacked layers never their number, unless they are tiny.
        largest = [i for i in np.argsort(shape)[::-1] if axes[i] is None and shape[i] % size == 0]
        if size > 1 and largest:
            axes[largest[0]] = FULLY
        return axes


def of(setting):
    """The ``Sharding`` of an experiment's setting, which may also be one of two names."""
    return {"replicate": Sharding(), "fsdp": Sharding(fully=0)}[setting] if isinstance(setting, str) else setting


def rows(mesh, evenly=True):
    """For batches: split over the leading axis, or (evenly False) whole on every device."""
    return NamedSharding(mesh, PartitionSpec(ROWS if evenly else None))


def mesh_of(params):
    """The mesh that parameters lie on; one of their devices in a row where they lie on none."""
    there = jax.tree.leaves(params)[0].sharding
    if isinstance(there, NamedSharding) and there.mesh.axis_names == AXES:
        return there.mesh
    devices = sorted(there.device_set, key=lambda device: device.id)
    shape = (len(devices), 1, 1, 1)
    return Mesh(np.array(devices).reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def divides(mesh, count):
    """Whether that many rows can be split evenly."""
    return count % (mesh.shape[DATA] * mesh.shape[FULLY]) == 0


def spread(model, mesh, evenly=True):
    """The model, told where its memories lie if it asks for that: each device then searches its own."""
    ask = getattr(model, "spread", None)
    return ask(mesh, ROWS if evenly else (), TENSOR, ENTRIES) if ask and mesh.size > 1 else model


def start(model, mesh, count):
    """The model's state before the first batch of so many rows, each part made where it will lie."""
    create = functools.partial(model.start, count)
    shapes = {"model": jax.eval_shape(create)}
    if mesh.size == 1 or not jax.tree.leaves(shapes):
        return create()
    return jax.jit(create, out_shardings=Sharding().of_state(shapes, mesh)["model"])()


def reader(mesh):
    """(number, count) of this process among those that feed rows: processes that share rows feed the same ones."""
    mine = {device for device in mesh.devices.flat if device.process_index == jax.process_index()}
    places = mesh.devices.reshape(-1, mesh.shape[ENTRIES] * mesh.shape[TENSOR])
    held = [place for place, group in enumerate(places) if mine & set(group)]
    share = len(held)
    if not share or len(places) % share or held != list(range(held[0], held[0] + share)) or held[0] % share:
        raise ValueError(
            f"process {jax.process_index()} has the places {held} of {len(places)} for rows; every process needs an "
            "equal block of them: choose entries and tensor so that they divide the devices of a process, or the "
            "other way round"
        )
    return held[0] // share, len(places) // share


def put_batch(batch, sharding):
    """Moves a host batch onto the devices; with several processes each gives its own rows."""
    return {name: jax.make_array_from_process_local_data(sharding, value) for name, value in batch.items()}


def _fitting(axes, shape, mesh):
    """The axes, each None where it does not divide its dimension or has one device only."""
    size = lambda axis: math.prod(mesh.shape[one] for one in ((axis,) if isinstance(axis, str) else axis or ()))  # noqa: E731
    return tuple(axis if size(axis) > 1 and n % size(axis) == 0 else None for axis, n in zip(axes, shape, strict=False))
