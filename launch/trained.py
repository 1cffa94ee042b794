"""The one run whose newest checkpoint a command looks at: `repro sample`, `repro inspect`."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from launch import composition as files
from launch.errors import CheckpointError, ConfigError


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run's experiment, and what its newest checkpoint holds. `name` is its stem, scale and seed."""

    experiment: Any
    params: Any
    step: int
    name: str
    folder: Path


def newest(arguments):
    """The run that STEM, --scale, --seed, --set and --workdir of a command line name.

    Raises ConfigError if they name several, and CheckpointError, with the command that makes one, if it has none.
    """
    job = files.compose(_one(arguments), arguments.scale, arguments.seeds[0], arguments.overrides)
    folder = arguments.workdir / job.run_name
    if not any(child.name.isdecimal() for child in (folder / "checkpoints").glob("*")):
        raise CheckpointError(f"{folder} holds no checkpoint; train first: {_command(arguments)}")

    from launch import config
    from launch.train import restore_params

    experiment = config.build(job)
    step, params = restore_params(experiment, folder)
    return Trained(experiment, params, step, job.run_name, folder)


def _one(arguments):
    stems = files.select(arguments.stem)
    if len(stems) > 1 or len(arguments.seeds) > 1:
        raise ConfigError(f"one run at a time; {arguments.stem} and --seed name {len(stems) * len(arguments.seeds)}")
    return stems[0]


def _command(arguments):
    """The ``repro run`` that trains what was asked for."""
    words = ["repro", "run", arguments.stem]
    if arguments.scale != files.FULL_SCALE:
        words += ["--scale", arguments.scale]
    if arguments.seeds[0] is not None:
        words += ["--seed", str(arguments.seeds[0])]
    for override in arguments.overrides:
        words += ["--set", override]
    return shlex.join([*words, "--workdir", str(arguments.workdir)])
