"""Compiles the training step of one row for devices that are not here: `python -m launch.compiling SETTING`.

A process of its own, since its environment is: JAX sees only this machine's processor, and libtpu compiles for a
topology of TPUs. What is compiled is what `launch.train` would run there, with every array where it would lie. Prints
one line of JSON. A setting has `stem`, `scale`, `overrides`, `topology` and `known`, digests of programs whose
compilation can be skipped.
"""

import hashlib
import json
import re
import resource
import sys
import time
from importlib import metadata

import jax
import numpy as np

from launch import composition, config, hlo, train

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def compile_row(setting):
    """Facts of one compilation, as `results.compilations` keeps them."""
    made = config.build(
        composition.compose(setting["stem"], setting["scale"], overrides=tuple(setting.get("overrides", ())))
    )
    mesh = train.mesh_of(made, devices_of(setting["topology"]))
    # Models ask which backend they are traced for; it is that of the devices, not of this process.
    jax.default_backend = lambda: mesh.devices.flat[0].platform
    prepared = train.prepare(made, mesh)
    state = jax.tree.map(placed, prepared.shapes, prepared.shardings)
    batch = {name: placed(x, prepared.rows) for name, x in made.task.specimen(made.batch_size).items()}
    began = time.monotonic()
    lowered = prepared.update.lower(state, batch, jax.eval_shape(lambda: jax.random.key(0)))
    facts = {
        "program": hashlib.sha256(lowered.as_text().encode()).hexdigest(),
        "devices": mesh.size,
        "mesh": {name: size for name, size in mesh.shape.items() if size > 1},
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(prepared.shapes.params)),
        "tokens": made.batch_size * made.task.length,
        "state_bytes": {
            part: sum(share(leaf) for leaf in jax.tree.leaves(getattr(state, part)))
            for part in ("params", "optimizer", "model")
        },
        "lower_seconds": round(time.monotonic() - began, 1),
        "versions": versions(),
    }
    if facts["program"] in setting.get("known", ()):
        return facts
    return {**facts, **compiled(lowered, visits(made.model, made.task.length))}


def compiled(lowered, unknown_trips):
    """Compiles, and reads what the program needs and does."""
    began, used = time.monotonic(), time.process_time()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "hbm" not in str(error).lower():
            raise
        facts = overflow(str(error))
    else:
        memory, read = program.memory_analysis(), hlo.Program(program.as_text(), unknown_trips)
        facts = {
            "fits": True,
            "memory": {
                "arguments": memory.argument_size_in_bytes,
                "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
                "temporaries": memory.temp_size_in_bytes,
                "code": memory.generated_code_size_in_bytes,
            },
            "flops": read.costs.flops,
            "bytes": read.costs.bytes,
            "cycles": read.costs.cycles,
            "silent_bytes": read.costs.silent,
            "collectives": hlo.names_of(read.costs.collectives),
            "partial_reduces": read.partial_reduces,
            "unknown_loops": read.unknown,
            "assumed_trips": unknown_trips,
        }
        facts["hbm_bytes"] = sum(facts["memory"].values())
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        **facts,
        "compile_seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(time.process_time() - used, 1),
        "compiler_bytes": usage * (1 if sys.platform == "darwin" else 1024),
    }


def devices_of(topology):
    """Devices of a topology such as 'v3:4x4' (TPU), or 'cpu:8', those of this process."""
    kind, _, shape = topology.partition(":")
    if kind == "cpu":
        return jax.devices()[: int(shape)]
    from jax.experimental import topologies

    return topologies.get_topology_desc(topology_name=topology, platform="tpu").devices


def placed(leaf, sharding):
    """A leaf as a shape that lies somewhere."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def share(leaf):
    """Bytes of one device's part of a leaf."""
    return int(np.prod(leaf.sharding.shard_shape(leaf.shape), dtype=np.int64)) * leaf.dtype.itemsize


def visits(model, length):
    """How often the loops run whose length is not in the text, on the average: over blocks of a memory that is full
    (`memorizing.retrieve`), or over the blocks of keys that a block of queries may see (`reformer.full`)."""
    if memory := getattr(model, "memory", 0):
        return max(1, -(-memory // model.search.block))
    counts = [kind.visits(length) for kind in getattr(model, "pattern", ()) if hasattr(kind, "visits")]
    return counts[0] if counts and model.causal else 1


def overflow(text):
    """What the compiler says of a program that does not fit."""
    used = re.search(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm", text)
    size = int(float(used[1]) * UNITS[used[2]]) if used else 0
    return {"fits": False, "hbm_bytes": size, "problem": " ".join(text.split())[:300]}


def versions():
    """Of what decides a compilation."""
    found = {}
    for package in ("jax", "jaxlib", "libtpu"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    print(json.dumps(compile_row(json.loads(sys.argv[1]))), flush=True)
