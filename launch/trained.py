"""The one run whose newest checkpoint a command looks at: `repro sample`, `repro inspect`."""

import dataclasses
import re
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
    line = command(arguments.stem, arguments.scale, arguments.seeds[0], arguments.overrides, arguments.workdir)
    if not any(child.name.isdecimal() for child in (folder / "checkpoints").glob("*")):
        raise CheckpointError(f"{folder} holds no checkpoint; train first: {line}")

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


def command(stem, scale, seed, overrides, runs):
    """The ``repro run`` that trains this, to be copied into a shell."""
    words = ["repro", "run", stem]
    if scale != files.FULL_SCALE:
        words += ["--scale", scale]
    if seed is not None:
        words += ["--seed", str(seed)]
    for override in overrides:
        words += ["--set", override]
    # Gin's strings have single quotes, which shlex would quote letter by letter.
    quoted = (f'"{word}"' if "'" in word and not re.search(r'["$`\\!]', word) else shlex.quote(word) for word in words)
    return " ".join([*quoted, "--workdir", shlex.quote(str(runs))])
