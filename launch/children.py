"""Child processes that have compiled one cell of a profile and run a step whenever they are asked to.

Every cell lives in a process of its own, so that peak memory is its own.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

from launch.errors import RunError

ROOT = Path(__file__).resolve().parent.parent


def start(stack, cell, setting, name, say, patience=1200):
    """Starts the process of one cell, which `stack` closes. Returns the Child, or None if it failed.

    What it said of itself goes into `cell`; if it failed, `cell["missing"]` says why. `say` gets a line of progress.
    """
    try:
        child = Child(setting, patience)
    except RunError as error:
        cell["missing"] = str(error)
        say(f"{name}: failed: {error}")
        return None
    stack.callback(child.close)
    cell.update(child.facts)
    say(f"{name}: compiled in {child.facts['compile_seconds']:.1f} s")
    return child


class Child:
    """One cell's process.

    ``facts``: what it said after compiling and its first step; ``peak``: its peak memory in bytes so far;
    ``processor_seconds``: of the last step, all cores together, which other work on the machine touches less than wall
    time.

    Raises:
      RunError: the process died or did not answer within ``patience`` seconds; its last line of output is quoted.
    """

    def __init__(self, setting, patience=1200):
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        # Several children share an accelerator: none may take all of its memory at the start. The last line of an
        # unfiltered traceback is the error.
        ours = {"PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_TRACEBACK_FILTERING": "off"}
        environment = {**os.environ, **ours}
        self.patience = patience
        # A pipe that nobody reads would fill up.
        self.trouble = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launch.workloads", json.dumps(setting)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.trouble,
            text=True,
            env=environment,
        )
        self.facts = self._read()
        self.peak, self.processor_seconds = self.facts["peak_bytes"], None

    def step(self):
        """Seconds of one step."""
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        answer = self._read()
        self.peak, self.processor_seconds = answer["peak_bytes"], answer["processor_seconds"]
        return answer["seconds"]

    def _read(self):
        ready, _, _ = select.select([self.process.stdout], [], [], self.patience)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.process.kill()
        self.process.communicate()
        self.trouble.seek(0)
        said = (self.trouble.read().strip().splitlines() or ["it said nothing"])[-1]
        self.trouble.close()
        why = f"exit status {self.process.returncode}" if ready else f"no answer in {self.patience} s"
        raise RunError(f"{why}: {said[:200]}")

    def close(self):
        if self.process.poll() is None:
            self.process.communicate()  # the end of its input is the end of its work
        self.trouble.close()
