"""One run from start to record: its folder, training, the final evaluations, the record."""

import contextlib
import datetime
import difflib
import functools
import os
import platform
import signal
import subprocess
import time
from importlib import metadata
from pathlib import Path

from launch.composition import ROOT
from launch.errors import ConfigError, RunError, Stopped
from results import schema

RECORDS = ROOT / "results" / "records"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "gin-config", "tensorflow", "seqio", "clu")


def run(composition, runs, records, monitor, profile=False):
    """Trains and evaluates one composition, or finds that this has been done.

    Args:
      composition: from ``launch.composition.compose``.
      runs: directory of all runs; this one uses ``runs / composition.run_name``.
      records: directory where the record is written, as ``<stem>/<scale>-seed<k>-<time>.json``.
      monitor: a ``Monitor``.
      profile: writes a profile of a few steps for TensorBoard, through clu.

    Returns:
      The path of the record; None on all processes of a run but the first.
    """
    folder, records = Path(runs) / composition.run_name, Path(records)
    if record := _finished(composition, folder, monitor):
        monitor.note(f"{composition.run_name}: already done")
        return _file(record, folder, records)

    code = _commit()  # now, since the checkout may go on while the run does
    # JAX, TensorFlow and seqio are imported here, not before a run has something to do.
    from launch import beginning, config, devices, processes
    from launch.evaluate import evaluate
    from launch.train import train

    experiment = config.build(composition)
    again = "the same command continues from the newest checkpoint"
    with processes.together(f"{again}, started on all"), _own(folder, processes.first()), _stoppable(again):
        _check_same(composition, folder)
        if processes.first():
            _write(folder / "config.gin", composition.text, keep=True)
            _write(folder / "operative.gin", config.operative())
            if overview := _overview(experiment):
                _write(folder / "parameters.txt", overview)
        processes.meet_in(folder)
        if not processes.first():
            _check_same(composition, folder)  # against what the first one wrote
        devices.reset_peak_memory()
        hooks = _hooks(folder, experiment) if profile and processes.first() else ()
        if experiment.continue_from:
            beginning.continued(experiment, folder, monitor)
        begin = functools.partial(beginning.parameters, composition, experiment, runs, monitor)
        trained = train(experiment, folder, monitor, hooks, begin if experiment.start_from else None)
        monitor.evaluating(experiment.evaluations)
        with _stoppable("training is done and saved, the same command repeats the evaluation"):
            begun, results = time.monotonic(), {}
            for name, evaluation in experiment.evaluations.items():
                on_batch = monitor.scoring(name)
                results[name] = evaluate(trained.params, evaluation, seed=experiment.seed, on_batch=on_batch)
                monitor.evaluated(name, results[name])
            seconds = trained.seconds + time.monotonic() - begun
            if not processes.first():
                return None
            record = _record(composition, experiment, folder, trained, results, seconds, code)
        return _file(record, folder, records)


def _overview(experiment):
    """clu's table of all parameters: name, shape, type, size. None where clu is not installed."""
    try:
        from clu import parameter_overview
    except ImportError:
        return None
    from flax import serialization, traverse_util

    from launch.train import parameter_shapes

    flat = traverse_util.flatten_dict(serialization.to_state_dict(parameter_shapes(experiment)), sep="/")
    return parameter_overview.get_parameter_overview(flat, include_stats=False) + "\n"


def _finished(composition, folder, monitor):
    """The record that a finished run left in its folder, or None. An unusable one is named, and made again."""
    try:
        record = schema.read(folder / "record.json")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (schema.RecordError, OSError) as error:
        monitor.note(f"{folder / 'record.json'} is unusable ({error}); evaluating again")
        return None
    _check_same(composition, folder)
    return record


def _file(record, folder, records):
    """Puts the record among the others, unless it is there; returns its path."""
    try:
        return schema.add(record, records)
    except OSError as error:
        raise RunError(
            f"cannot write a record in {records}: {error.strerror}; the run is done and {folder / 'record.json'} "
            "keeps its record; the same command, with another --records or more room, puts it there"
        ) from None


def _record(composition, experiment, folder, trained, results, seconds, code):
    """Writes the record of a finished run in the run's folder; returns it."""
    import jax

    from launch import devices

    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    started = datetime.datetime.fromtimestamp((folder / "config.gin").stat().st_mtime, datetime.UTC)
    commit, dirty = code
    record = {
        "schema": schema.VERSION,
        "stem": composition.stem,
        "scale": composition.scale,
        "seed": composition.seed,
        "steps": experiment.steps,
        "overrides": list(composition.changes),
        "commit": commit,
        "dirty": dirty,
        "config": composition.portable_text,
        "data": {"task": experiment.task.name, "fingerprint": experiment.task.fingerprint()},
        "devices": devices.describe(),
        "started": started.replace(microsecond=0).isoformat(),
        "finished": now.isoformat(),
        "wall_seconds": round(seconds, 3),
        "peak_memory_bytes": devices.peak_memory_bytes(),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(trained.params)),
        "tokens_per_second": round(trained.tokens_per_second, 1),
        "evaluations": results,
        "curve": trained.curve,
        "versions": _versions(),
    }
    try:
        schema.write(record, folder / "record.json")
    except OSError as error:
        raise RunError(
            f"cannot write {folder / 'record.json'}: {error.strerror}; training is done and saved, and the same "
            "command repeats the evaluation"
        ) from None
    return record


@contextlib.contextmanager
def _stoppable(advice):
    """Makes SIGTERM and SIGINT end in ``Stopped`` with this advice, wherever the program is.

    The training loop, which finishes its step and saves first, replaces this while it runs.
    """

    def stop(number, frame):
        del frame
        raise Stopped(f"stopped by {signal.Signals(number).name}; {advice}", number)

    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError):  # not in the main thread: whoever owns it handles signals
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_same(composition, folder):
    """A folder belongs to one config; another is refused, with the difference."""
    path = folder / "config.gin"
    if not path.exists():
        return
    before = path.read_text(errors="replace")
    if before == composition.text:
        return
    lines = difflib.unified_diff(
        before.splitlines(), composition.text.splitlines(), str(path), "asked for now", lineterm="", n=0
    )
    raise RunError(
        f"{folder} holds a run with another config:\n"
        + "\n".join(f"  {line}" for line in lines if not line.startswith("@@"))
        + "\nUse another --workdir, or move that folder away"
    )


@contextlib.contextmanager
def _own(folder, first=True):
    """Creates the folder and keeps other runs out of it while the first process of this one works there."""
    import fcntl

    if not first:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / "lock").open("w")
    except OSError as error:
        raise RunError(f"cannot write in {folder}: {error.strerror}; choose another place with --workdir") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another process is running in {folder}") from None
        yield


def _write(path, text, keep=False):
    """Writes a text file whole; ``keep`` leaves an existing one untouched, its time too."""
    if keep and path.exists():
        return
    draft = path.with_name(path.name + ".tmp")
    try:
        draft.write_text(text)
        os.replace(draft, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; make room, or choose another --workdir") from None


def _hooks(folder, experiment):
    """clu's profiler: a few steps in the middle of the first hundred."""
    try:
        from clu import periodic_actions
    except ImportError:
        raise ConfigError("--profile needs clu and TensorFlow, which are not installed here") from None
    first = min(20, experiment.steps // 2)
    return (periodic_actions.Profile(logdir=str(folder), first_profile=first, profile_duration_ms=2000),)


def _commit():
    """(commit, whether tracked files differ from it). Records and figures do not count: runs write those."""

    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
        return git("rev-parse", "HEAD").strip(), bool(changed.strip())
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True


def _versions():
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
