"""What a profile measures, one cell a process: `python -m launch.workloads SETTING` compiles it and waits to be asked.

Needs jax, optax and reformer; TensorFlow, seqio and gin are never imported.
"""

import json
import sys
import time
from typing import NamedTuple

from launch import memory_workloads


class Work(NamedTuple):
    """program: compiled, None where it is not ours; step: runs it once; facts: what else is worth keeping."""

    program: object
    step: object
    facts: dict


def attention(setting):
    """Attention alone, forward and backward, on random vectors (Figure 5 right)."""
    import jax
    import jax.numpy as jnp

    kind, dtype = setting["kind"], jnp.dtype(setting["dtype"])
    layer = attention_setting(kind, setting["chunk"])
    shape = (setting["batch"], setting["heads"], setting["length"], setting["head_width"])
    keys = jax.random.split(jax.random.key(0), 5)
    q, k, v, do = (jax.random.normal(key, shape, dtype) for key in keys[:4])
    k = None if layer.shared else k

    def loss(q, k, v, do, key):
        return jnp.sum(layer.attend(q, k, v, key).astype(jnp.float32) * do)

    program = jax.jit(jax.value_and_grad(loss, (0, 2) if k is None else (0, 1, 2)))
    program = program.lower(q, k, v, do, keys[4]).compile()
    return Work(program, lambda: program(q, k, v, do, keys[4]), {})


def training(setting):
    """A whole training step of a decoder-only model: loss, gradients, Adam, parameters given back in place.

    With `swap`, parameters lie in the host's memory and Adam is a program of the CPU; see `launch.swapping`.
    """
    import functools

    import jax
    import jax.numpy as jnp
    import optax

    import reformer
    from launch import devices

    names = ("vocabulary", "length", "layers", "width", "hidden", "heads", "residual", "backward", "dtype")
    axial = {"positions": "axial"} if setting["positions"] == "axial" else {}
    model = reformer.Model(
        **{name: setting[name] for name in names},
        attention=attention_setting(setting["attention"], setting["chunk"]),
        **{name: setting.get(name) for name in ("head_width", "feedforward_chunk", "loss_chunk")},
        **axial,
    )
    optimizer = optax.adam(1e-3)

    def gradient(params, tokens, key):
        batch = {
            "decoder_target_tokens": tokens,
            "decoder_input_tokens": jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
            "decoder_loss_weights": jnp.ones(tokens.shape, jnp.float32),
            "decoder_segment_ids": jnp.ones_like(tokens),
        }
        return jax.value_and_grad(lambda p: model.apply(p, batch, (), key, train=True)[0]["nats"].mean())(params)

    def descend(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    @functools.partial(jax.jit, donate_argnums=(0, 1), compiler_options=devices.compiler_options(jax.default_backend()))
    def update(params, state, tokens, key):
        loss, grads = gradient(params, tokens, key)
        return *descend(params, state, grads), loss

    key = jax.random.key(0)
    tokens = jax.random.randint(key, (setting["batch"], setting["length"]), 0, setting["vocabulary"])
    if setting.get("swap"):
        return swapped(lambda: model.init(key), gradient, optimizer.init, descend, tokens, key)
    params = model.init(key)
    kept = [params, jax.jit(optimizer.init)(params)]
    program = update.lower(*kept, tokens, key).compile()

    def step():
        kept[0], kept[1], loss = program(*kept, tokens, key)
        return loss

    parameters = sum(x.size for x in jax.tree.leaves(params))
    # What is temporary besides activations: the gradients, as large as the parameters.
    activations = program.memory_analysis().temp_size_in_bytes - 4 * parameters
    return Work(program, step, {"parameters": parameters, "activation_bytes": activations})


def swapped(create, gradient, begin, descend, tokens, key):
    """The same step in two programs, with parameters in the host's memory.

    Facts: `copy_seconds`, of all parameters to the device and as much back; `gradient_seconds`, of the program that
    hides them or does not (the same without swapping differs by what is not hidden). On a CPU nothing is copied.
    """
    import functools

    import jax

    from launch import swapping

    there = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind=swapping.HOST)
    here = there.with_memory_kind("device")
    params = swapping.initial(create, there)
    kept = [params, swapping.initial(functools.partial(begin, params), swapping.cpu())]
    program = jax.jit(gradient, out_shardings=(here, there)).lower(params, tokens, key).compile()
    descend = swapping.on_host(descend)

    def step():
        loss, grads = program(kept[0], tokens, key)
        kept[0], kept[1] = descend(*kept, grads)
        return loss, kept[1]

    def copy():
        return jax.device_put(jax.device_put(kept[0], here, may_alias=False), there, may_alias=False)

    def warm(work):
        seconds(work)
        return seconds(work)

    memory = program.memory_analysis()
    facts = {
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "activation_bytes": memory.temp_size_in_bytes,
        "device_argument_bytes": memory.argument_size_in_bytes,
        "host_argument_bytes": memory.host_argument_size_in_bytes,
        "copy_seconds": warm(copy),
        "gradient_seconds": warm(lambda: program(kept[0], tokens, key)),
    }
    if reason := swapping.one_memory():
        facts["note"] = f"{reason}: swapping changes where arrays are said to be, not where they are"
    return Work(program, step, facts)


WORKLOADS = {
    "attention": attention,
    "training": training,
    "retrieval": memory_workloads.retrieval,
    "memory": memory_workloads.memory,
}


def attention_setting(kind, chunk):
    """The setting of a kind's name: dense, full (separate keys), shared, local, or lshN with N rounds."""
    import reformer

    if kind.startswith("lsh"):
        return reformer.LSH(rounds=int(kind[3:]), chunk=chunk)
    if kind == "local":
        return reformer.Local(chunk=chunk)
    if kind == "dense":
        return dense()
    return reformer.Full(shared=kind == "shared")


def dense():
    """Attention as in the Transformer: all logits at once, kept for the backward pass. Only to be measured."""
    from dataclasses import dataclass

    import jax
    import jax.numpy as jnp

    @dataclass(frozen=True)
    class Dense:
        shared = False

        def draw(self, key, heads, length, width):
            return None

        def decide(self, q, directions):
            return None

        def attend(self, q, k, v, key=None, *, causal=True, keep=None, train=False, decision=None):
            logits = jnp.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
            legal = jnp.tri(q.shape[2], dtype=bool)[None, None]
            return jnp.einsum("bhij,bhje->bhie", jax.nn.softmax(jnp.where(legal, logits, -1e30)), v)

    return Dense()


def serve(setting):
    """A process's life: compile and warm up one cell, say so, then one line of answer per line of input."""
    import jax

    from launch import devices

    began = time.perf_counter()
    work = Work(*WORKLOADS[setting["what"]](setting))
    compiled, compile_peak = time.perf_counter(), devices.peak_memory_bytes()
    devices.trim_memory()
    devices.reset_peak_memory()
    first, times = seconds(work.step), 1
    if first < 1:
        # Short steps are repeated within a measurement, or the clock and the dispatch would be measured.
        times = max(1, min(50, round(0.05 / seconds(work.step))))
    device = jax.devices()[0]
    facts = {
        "compile_seconds": compiled - began,
        "first_seconds": first,
        "compile_peak_bytes": compile_peak,
        "peak_bytes": devices.peak_memory_bytes(),
        "temp_bytes": work.program and work.program.memory_analysis().temp_size_in_bytes,
        "device": {"platform": device.platform, "kind": device.device_kind, "cores": devices.cores()},
        "versions": {"jax": jax.__version__, "python": ".".join(map(str, sys.version_info[:3]))},
        **work.facts,
    }
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(times):
            out = work.step()
        jax.block_until_ready(out)
        wall = (time.perf_counter() - began) / times
        processor = (time.process_time() - used) / times
        answer = {"seconds": wall, "processor_seconds": processor, "peak_bytes": devices.peak_memory_bytes()}
        print(json.dumps(answer), flush=True)


def seconds(step):
    """Seconds that one call of `step` takes until its results are there."""
    import jax

    began = time.perf_counter()
    jax.block_until_ready(step())
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
