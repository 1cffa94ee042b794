"""The training loop. Read it downwards: data, state, restore, loop, and what happens every so many steps."""

import dataclasses
import functools
import json
import signal
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from launch import devices, processes, sharding, swapping
from launch.checkpoint import Checkpoints
from launch.errors import CheckpointError, NonFiniteLoss, Stopped
from launch.evaluate import SUMS, evaluate, example_sums
from launch.history import History


class TrainState(NamedTuple):
    """All that an update changes. ``step`` counts finished updates, int32 []."""

    step: Any
    params: Any
    optimizer: Any
    model: Any


@dataclasses.dataclass
class Trained:
    """What a finished training leaves: parameters, seconds spent over all restarts, and the learning curve."""

    params: Any
    seconds: float
    tokens_per_second: float
    curve: dict[str, list]


def train(experiment, folder, monitor, hooks=(), begin=None):
    """Trains to the last step, from the newest checkpoint if there is one.

    Args:
      experiment: an ``Experiment``.
      folder: a ``pathlib.Path``; ``checkpoints/``, ``metrics.jsonl`` and TensorBoard events are written below it.
      monitor: shows progress (``launch.monitor``).
      hooks: callables given the step after each update, such as clu's periodic actions.
      begin: parameters to begin with instead of fresh ones, where there is no checkpoint; a function that gives them.

    Returns:
      ``Trained``.

    Raises:
      NonFiniteLoss, Stopped, CheckpointError: see there.
    """
    # Data.
    mesh = mesh_of(experiment)
    number, readers = sharding.reader(mesh)
    feed = experiment.task.feed("train", experiment.batch_size // readers, experiment.seed, (number, readers))

    # State, sharded from the first moment, so that no device ever holds what it need not.
    swap = swapping.wanted(experiment, monitor.note)
    create, shapes, shardings, rows, update = prepare(experiment, mesh, swap)
    key = jax.random.fold_in(jax.random.key(experiment.seed), 1)

    # Restore or start.
    checkpoints = Checkpoints(folder / "checkpoints", experiment.keep)
    found = checkpoints.steps()
    history = History(folder, experiment.task, processes.first())
    seconds = 0.0
    if found:
        state, loop = checkpoints.restore(found[-1], shapes, shardings)
        feed.restore(loop["feed"])
        history.restore(found[-1], loop["history"])
        seconds = loop["seconds"]
    else:
        state = swapping.initial(create, shardings) if swap else jax.jit(create, out_shardings=shardings)()
        if begin:
            state = state._replace(params=jax.device_put(begin(), shardings.params))
        history.restore(0, None)
    first = found[-1] if found else 0
    monitor.start(experiment, first, sum(leaf.size for leaf in jax.tree.leaves(shapes.params)))

    # Loop. An update is queued before the last one's numbers are read, so the device never waits for the host.
    pending = None
    begun = time.monotonic()
    elapsed = lambda: seconds + time.monotonic() - begun  # noqa: E731
    save = lambda step: checkpoints.save(  # noqa: E731
        step, state, {"feed": feed.state(), "history": history.state(), "seconds": elapsed()}
    )
    try:
        with _StopSignals() as stop:
            for step in range(first + 1, experiment.steps + 1):
                batch = sharding.put_batch(next(feed), rows)
                state, sums = update(state, batch, key)
                if pending:
                    _read(*pending, history, checkpoints, monitor)
                pending = (step, sums)
                last, stopping = step == experiment.steps, processes.agreed(stop.requested, step)
                log, watch, keep = (
                    last or (every and step % every == 0)
                    for every in (experiment.log_every, experiment.eval_every, experiment.save_every)
                )
                if log or watch or keep or stopping:
                    _read(*pending, history, checkpoints, monitor)
                    pending = None
                if log:
                    monitor.logged(step, history.log(step))
                if watch and not last:
                    history.evaluated(step, _watch(experiment, state.params, monitor))
                if keep or stopping:
                    save(step)
                for hook in hooks:
                    hook(step)
                if stopping:
                    break
            checkpoints.wait()
            if processes.agreed(stop.requested):  # perhaps after the last step, or while waiting: it must not be lost
                step = step if first < experiment.steps else first
                told = stop.signal or signal.SIGTERM  # another process may be the one that was told
                raise Stopped(f"stopped at step {step} of {experiment.steps}; the same command continues", told)
    finally:
        checkpoints.close()
        history.close()
    tokens = (experiment.steps - first) * experiment.batch_size * experiment.task.length
    speed = tokens / max(time.monotonic() - begun, 1e-9)
    return Trained(state.params, elapsed(), speed if tokens else 0.0, history.curve())


def restore(experiment, folder):
    """The newest checkpoint of a run's folder: (step, ``TrainState``, the loop's small values as JSON gives them).

    Raises ``CheckpointError`` if there is none, if it is of another model, or of other data than lie there now.
    """
    folder = folder / "checkpoints"
    if not folder.is_dir():
        raise CheckpointError(f"{folder} does not exist: this experiment has not been trained here")
    _, shapes, shardings, _, _ = prepare(experiment, mesh_of(experiment), swapping.wanted(experiment))
    checkpoints = Checkpoints(folder, experiment.keep)
    try:
        found = checkpoints.steps()
        if not found:
            raise CheckpointError(f"{folder} holds no whole checkpoint")
        state, loop = checkpoints.restore(found[-1], shapes, shardings)
    finally:
        checkpoints.close()
    # A vocabulary or data that were made anew meanwhile: ids would mean something else than what was learned.
    trained, now = json.loads(loop["feed"])["task"], experiment.task.name
    if trained != now:
        raise CheckpointError(
            f"checkpoint {found[-1]} in {folder} was trained on {trained}, but what lies at the same place now is "
            f"{now}; put vocabulary and data back"
        )
    return found[-1], state, loop


def restore_params(experiment, folder):
    """The newest checkpoint's (step, params), for evaluation alone. Raises as ``restore`` does."""
    step, state, _ = restore(experiment, folder)
    return step, state.params


class Prepared(NamedTuple):
    """The parts of a run that devices decide, before anything is computed."""

    create: Any  # () -> the state before the first update
    shapes: Any  # of that state
    shardings: Any  # where each of its leaves lives
    rows: Any  # where a batch lives
    update: Any  # jitted: state, batch, key -> state, sums


def mesh_of(experiment, devices=None):
    """The mesh of a run on these devices (default: JAX's)."""
    setting = sharding.of(experiment.sharding)
    return setting.mesh(experiment.batch_size // experiment.accumulate, devices)


def prepare(experiment, mesh, swap=False):
    """``Prepared`` for a mesh, of devices that are here or (``launch.tpu``) of others."""
    create = functools.partial(_initial_state, experiment)
    shapes = jax.eval_shape(create)
    shardings = sharding.of(experiment.sharding).of_state(shapes, mesh)
    if swap:
        shardings = swapping.placed(shardings)
    rows = sharding.rows(mesh)
    return Prepared(create, shapes, shardings, rows, _update_function(experiment, shardings, rows, swap))


def parameter_shapes(experiment):
    """The parameter tree as shapes and types; nothing is computed."""
    return jax.eval_shape(functools.partial(_initial_state, experiment)).params


def _initial_state(experiment):
    """The state before the first update; pure, so it can be traced for shapes and shardings."""
    batch = experiment.task.specimen()
    params = experiment.model.init(jax.random.key(experiment.seed), batch)
    optimizer = experiment.optimizer.build(experiment.steps).init(params)
    state = experiment.model.start(experiment.batch_size)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer, state)


def _update_function(experiment, shardings, batch_sharding, swap=False):
    """A jitted update. Two experiments with equal settings share one compiled program (the seed is no setting)."""
    model = sharding.spread(experiment.model, batch_sharding.mesh)
    settings = model, experiment.optimizer, experiment.steps, experiment.accumulate
    leaves, tree = jax.tree.flatten(shardings)
    return _jitted_update(settings, tuple(leaves), tree, batch_sharding, swap)


@functools.lru_cache(maxsize=16)
def _jitted_update(settings, leaves, tree, batch_sharding, swap):
    model, optimizer, steps, accumulate = settings
    gradient = functools.partial(_gradient, model=model)
    descend = functools.partial(_descend, rule=optimizer.build(steps))
    state = jax.tree.unflatten(tree, leaves)
    if swap:
        return swapping.update_function(gradient, descend, state, accumulate)
    step = functools.partial(_update, gradient=gradient, descend=descend, accumulate=accumulate)
    whole = NamedSharding(batch_sharding.mesh, PartitionSpec())
    shardings = {"in_shardings": (state, batch_sharding, None), "out_shardings": (state, whole)}
    options = devices.compiler_options(batch_sharding.mesh.devices.flat[0].platform)
    return jax.jit(step, **shardings, donate_argnums=0, compiler_options=options)


def _update(state, batch, key, *, gradient, descend, accumulate):
    """One optimiser step on one batch. Returns the new state and {nats, correct, weights, grad_norm}, each []."""
    key = jax.random.fold_in(key, state.step)
    if accumulate == 1:
        total, model_state = gradient(state.params, batch, state.model, key)
    else:

        def micro(carry, inputs):
            part, part_state, index = inputs
            total, part_state = gradient(state.params, part, part_state, jax.random.fold_in(key, index))
            return jax.tree.map(jnp.add, carry, total), part_state

        zeros = jax.tree.map(jnp.zeros_like, state.params), {name: jnp.zeros(()) for name in SUMS}
        parts = jax.tree.map(functools.partial(_split, accumulate), (batch, state.model))
        total, parts = jax.lax.scan(micro, zeros, (*parts, jnp.arange(accumulate)))
        model_state = jax.tree.map(_join, parts)
    params, optimizer, step, sums = descend(state.params, state.optimizer, state.step, total)
    return TrainState(step, params, optimizer, model_state), sums


def _gradient(params, batch, model_state, key, *, model):
    """((the gradient of the sum of nats, sums over the batch), the model's next state)."""

    def nats(params):
        scores, after = model.apply(params, batch, model_state, key, train=True)
        sums = {name: jnp.sum(value) for name, value in example_sums(scores).items()}
        return sums["nats"], (sums, after)

    grads, (sums, model_state) = jax.grad(nats, has_aux=True)(params)
    return (grads, sums), model_state


def _descend(params, optimizer, step, total, *, rule):
    """The optimiser's step along the gradient of the mean."""
    grads, sums = total
    # Sums over positions, divided once: micro-batches and devices with unequal weights still give the batch's mean.
    grads = jax.tree.map(lambda g: g / jnp.maximum(sums["weights"], 1.0), grads)
    updates, optimizer = rule.update(grads, optimizer, params)
    return optax.apply_updates(params, updates), optimizer, step + 1, {**sums, "grad_norm": optax.tree.norm(grads)}


def _split(parts, x):
    """[b, ...] -> [parts, b / parts, ...], every micro-batch taking rows from every device's share."""
    return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)


def _join(x):
    """The inverse of ``_split``."""
    return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])


def _read(step, sums, history, checkpoints, monitor):
    """Waits for one update's numbers, refuses non-finite ones, adds them up."""
    sums = {name: float(value) for name, value in jax.device_get(sums).items()}
    if not (np.isfinite(sums["nats"]) and np.isfinite(sums["grad_norm"])):
        what = "loss" if not np.isfinite(sums["nats"]) else "gradient norm"
        saved = checkpoints.steps()
        good = f"checkpoint {saved[-1]} is kept" if saved else "no checkpoint had been written"
        raise NonFiniteLoss(
            f"the {what} became {sums['nats' if what == 'loss' else 'grad_norm']} in step {step} (it was finite up to "
            f"step {step - 1}); {good}. A lower learning rate or gradient clipping usually helps"
        )
    history.add(sums)
    monitor.stepped(step)


def _watch(experiment, params, monitor):
    """All evaluations on their watch split, one draw each."""
    results = {}
    for name, evaluation in experiment.evaluations.items():
        results[name] = evaluate(params, evaluation, seed=experiment.seed, split=evaluation.watch_split, draws=1)
        monitor.evaluated(name, results[name])
    return results


class _StopSignals:
    """Turns SIGTERM and the first SIGINT into a request; a second SIGINT interrupts at once."""

    def __enter__(self):
        self.requested, self.signal = False, None
        self._before = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[number] = signal.signal(number, self._request)
            except ValueError:  # not in the main thread: whoever owns it handles signals
                pass
        return self

    def _request(self, number, frame):
        del frame
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested, self.signal = True, number

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)
