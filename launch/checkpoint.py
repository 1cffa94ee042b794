"""Checkpoints through Orbax: the whole training state, the feed's position and the loop's small values.

Orbax writes a step into a temporary folder and renames it, so a step is whole or absent, however a run ends.
"""

import contextlib
import functools
import logging
import shutil
import sys
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from launch.errors import CheckpointError


class Checkpoints:
    """The checkpoints of one run.

    Args:
      folder: created when missing.
      keep: how many of the newest steps stay.
    """

    def __init__(self, folder, keep):
        self.folder = Path(folder).resolve()
        _hush()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(
                self.folder,
                options=ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True),
                item_names=("state", "loop"),
            )
        except OSError as error:
            raise CheckpointError(f"cannot keep checkpoints in {self.folder}: {error.strerror or error}") from error

    def steps(self):
        """Steps on disk, oldest first."""
        return sorted(self._manager.all_steps())

    def save(self, step, state, loop):
        """Writes ``state`` (a tree of arrays) and ``loop`` (JSON-able) as ``step``; returns once they are copied.

        Raises:
          CheckpointError: this or the previous write failed. Earlier steps are untouched. JaxRuntimeError: another
            process is gone.
        """
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), loop=ocp.args.JsonSave({**loop, "shapes": _shapes(state)})
                ),
            )
        except Exception as error:
            raise self._failed(step, error) from error

    def wait(self):
        """Returns when everything saved is on disk. Raises what ``save`` does if that fails."""
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:
            raise self._failed(self._manager.latest_step(), error) from error

    def restore(self, step, shapes, shardings):
        """The (state, loop) saved as ``step``, each leaf placed by ``shardings``.

        The same call serves any number of devices. Raises ``CheckpointError`` when the files do not fit ``shapes``.
        """
        template = jax.tree.map(
            lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding), shapes, shardings
        )
        try:
            loop = self._manager.restore(step, args=ocp.args.Composite(loop=ocp.args.JsonRestore()))["loop"]
            self._check_shapes(step, loop.pop("shapes"), _shapes(shapes))
            args = ocp.args.Composite(state=ocp.args.StandardRestore(template))
            return self._manager.restore(step, args=args)["state"], loop
        except CheckpointError:
            raise
        except Exception as error:
            raise self._unreadable(step, error) from error

    def _check_shapes(self, step, saved, wanted):
        """Names the first difference. Orbax itself, refusing one array, would leave the reads of others pending."""
        for name in sorted(saved.keys() | wanted.keys()):
            if saved.get(name) != wanted.get(name):
                there, here = (f"shape {found[name]}" if name in found else "nothing" for found in (saved, wanted))
                raise self._unreadable(step, f"{name} is {there} in the file and {here} in this experiment")

    def _unreadable(self, step, error):
        older = [other for other in self.steps() if other < step]
        then = f"go on from checkpoint {older[-1]}" if older else "begin anew"
        return CheckpointError(
            f"cannot read checkpoint {step}: {_one_line(error)}. Move {self.folder / str(step)} away to {then}"
        )

    def close(self):
        """Frees the writer's threads. What failed to be written was reported by ``save`` or ``wait``."""
        with contextlib.suppress(Exception):
            self._manager.close()

    def _failed(self, step, error):
        if isinstance(error, jax.errors.JaxRuntimeError) and jax.process_count() > 1:
            return error  # what they agree on while writing came to nothing
        whole = [other for other in self.steps() if other != step]  # Orbax counts what it has begun
        kept = f"checkpoint {whole[-1]} is whole, and" if whole else "no other exists yet, and"
        free = shutil.disk_usage(self.folder).free / 2**20 if self.folder.is_dir() else 0.0
        return CheckpointError(
            f"cannot write checkpoint {step} in {self.folder} ({free:.0f} MiB free): {_one_line(error)}. "
            f"{kept} the same command continues from there"
        )


@functools.cache
def _hush():
    """Keeps Orbax, asyncio and TensorStore from printing a trace for each array that could not be written or read,
    from their own threads, some of them after the program has told it in one line."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    before = sys.unraisablehook

    def hook(unraisable):
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = hook


def _one_line(error):
    return " ".join(str(error).split())[:300] or type(error).__name__


def _shapes(tree):
    """{path: shape} of a tree of arrays, as JSON keeps it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): list(leaf.shape) for path, leaf in leaves}
