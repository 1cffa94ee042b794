"""One run from start to record: its folder, training, the final evaluations, the record."""

import contextlib
import datetime
import difflib
import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

from launch.composition import ROOT
from launch.errors import ConfigError, RunError

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
      The path of the record.
    """
    folder = Path(runs) / composition.run_name
    if (done := folder / "record.json").exists():
        _check_same(composition, folder)
        monitor.note(f"{composition.run_name}: already done, record {done}")
        return done

    # JAX, TensorFlow and seqio are imported here, not before a run has something to do.
    from launch import config, devices
    from launch.evaluate import evaluate
    from launch.train import train

    experiment = config.build(composition)
    with _own(folder):
        _check_same(composition, folder)
        _write(folder / "config.gin", composition.text, keep=True)
        _write(folder / "operative.gin", config.operative())
        if overview := _overview(experiment):
            _write(folder / "parameters.txt", overview)
        devices.reset_peak_memory()
        trained = train(experiment, folder, monitor, _hooks(folder, experiment) if profile else ())
        monitor.evaluating(experiment.evaluations)
        begun, results = time.monotonic(), {}
        for name, evaluation in experiment.evaluations.items():
            results[name] = evaluate(trained.params, evaluation, seed=experiment.seed)
            monitor.evaluated(name, results[name])
        seconds = trained.seconds + time.monotonic() - begun
        return _record(composition, experiment, folder, Path(records), trained, results, seconds)


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


def _record(composition, experiment, folder, records, trained, results, seconds):
    """Writes the record of a finished run, in the run's folder and among the records."""
    import jax

    from launch import devices
    from results import schema

    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    started = datetime.datetime.fromtimestamp((folder / "config.gin").stat().st_mtime, datetime.UTC)
    commit, dirty = _commit()
    record = {
        "schema": schema.VERSION,
        "stem": composition.stem,
        "scale": composition.scale,
        "seed": composition.seed,
        "steps": experiment.steps,
        "overrides": list(composition.overrides),
        "commit": commit,
        "dirty": dirty,
        "config": composition.text,
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
    name = f"{composition.scale}-seed{composition.seed}-{now:%Y%m%dT%H%M%SZ}.json"
    path = records / composition.stem / name
    schema.write(record, path)
    schema.write(record, folder / "record.json")
    return path


def _check_same(composition, folder):
    """A folder belongs to one config; another is refused, with the difference."""
    path = folder / "config.gin"
    if not path.exists():
        return
    before = path.read_text()
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
def _own(folder):
    """Creates the folder and keeps other processes out of it while this one works there."""
    import fcntl

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
    draft.write_text(text)
    os.replace(draft, path)


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
