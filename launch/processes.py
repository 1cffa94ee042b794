"""Several processes that make one run: who they are, what they agree on, and what is said when one of them is gone.

Each has some of the devices and feeds its own rows; all compute the same numbers. The first one writes the run's files;
checkpoints are written by all together, so the run's folder must be on a disk that all of them see.
"""

import contextlib
import os
import re
import sys
import time

import jax
import numpy as np

from launch.errors import ConfigError, RunError, Stopped

AUTO = "auto"
AGREE_EVERY = 10  # steps between two questions whether somebody was asked to stop: a question makes all wait for all
WORD = 16  # bytes that the first process leaves in the run's folder for the others to find
HEARTBEAT = 60  # seconds without a sign of life, after which a process counts as gone
FORM = (
    "'auto' (Cloud TPU, Slurm, Kubernetes, MPI) or NUMBER/COUNT@HOST:PORT of the first one, such as 0/4@10.0.0.2:8476"
)


def join(text):
    """Makes this process one of several. Before anything else asks JAX for devices.

    Args:
      text: see ``FORM``; None or '' for a process on its own.

    Raises:
      ConfigError: the text has another form. RunError: the others were not found.
    """
    if not text:
        return
    where = {}
    if text != AUTO:
        found = re.fullmatch(r"(\d+)/(\d+)@([^@\s]+:\d+)", text)
        if not found or not int(found[1]) < int(found[2]):
            raise ConfigError(f"--processes is {text!r}; wants {FORM}")
        where = {"process_id": int(found[1]), "num_processes": int(found[2]), "coordinator_address": found[3]}
        where["cluster_detection_method"] = "deactivate"
    patience = os.environ.get("REPRO_PATIENCE", "300")
    if not re.fullmatch(r"[1-9]\d*", patience):
        raise ConfigError(f"REPRO_PATIENCE is {patience!r}; wants seconds, such as 300")
    try:
        jax.distributed.initialize(
            **where,
            initialization_timeout=int(patience),
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=60,
        )
    except (RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise RunError(f"the processes did not find each other ({said}); start all of them, with {FORM}") from None


def first():
    """Whether this process writes what only one may write."""
    return jax.process_index() == 0


def meet(name):
    """Returns when all processes have come here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def meet_in(folder):
    """Returns when all processes have come here. Raises RunError unless it is one folder that they all see."""
    if jax.process_count() == 1:
        return
    said = folder / "meeting"
    if first():
        said.write_bytes(os.urandom(WORD))
    meet("folder")
    end = time.monotonic() + 10  # disks over a network tell late what is new
    while not said.is_file() and time.monotonic() < end:
        time.sleep(0.2)
    word = said.read_bytes() if said.is_file() else b""
    words = everywhere(np.frombuffer(word.ljust(WORD, b"\0")[:WORD], np.uint8)[None])
    if strangers := [number for number, other in enumerate(words) if (other != words[0]).any()]:
        raise RunError(
            f"{folder} is another folder for process {', '.join(map(str, strangers))} than for the first one; all need "
            "a disk that all of them see: give it as --workdir or REPRO_RUNS"
        )


def agreed(asked, step=0):
    """Whether some process was asked to stop, the same answer for all: alone at once, else every few steps."""
    if jax.process_count() == 1:
        return asked
    return step % AGREE_EVERY == 0 and bool(np.any(everywhere(np.array([asked]))))


def everywhere(tree):
    """A tree of arrays as NumPy, whole on every process: global ones, or those of all processes one after the other."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


@contextlib.contextmanager
def together(advice):
    """Turns what JAX raises where another process is gone into one line with this advice."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        said = " ".join(str(error).split())[:200]
        raise RunError(
            f"process {jax.process_index()} of {jax.process_count()} lost the others ({said}); {advice}"
        ) from None


def leave(error=None):
    """Ends this process if it is one of several, after an error that was told. Else it only returns.

    Where all were asked to stop they part together; after any other error at once, since others may never answer again.
    """
    if not jax.distributed.is_initialized():
        return
    if error is None or isinstance(error, Stopped):
        with contextlib.suppress(Exception):
            jax.distributed.shutdown()
    if error is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.code)
