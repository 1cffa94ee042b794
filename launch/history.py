"""The numbers of a run as it goes: ``metrics.jsonl`` (exact, the same after any restart) and TensorBoard events.

Times are not in the JSON lines, since they would differ between a run and its repetition.
"""

import contextlib
import json
import os

from launch.errors import RunError
from launch.evaluate import SUMS

CURVE_POINTS = 300


class History:
    """Sums of the current logging interval, and the lines written so far.

    Args:
      folder: where ``metrics.jsonl`` and the events go.
      task: its metrics are written.
      writes: False on all processes of a run but the first: they count, and write nothing.
    """

    def __init__(self, folder, task, writes=True):
        self._task, self._metrics, self._writes = task, task.metrics, writes
        self._path = folder / "metrics.jsonl"
        self._events = _summary_writer(folder) if writes else None
        self._lines = []
        self._clear()

    def _clear(self):
        self._sums = dict.fromkeys((*SUMS, "grad_norm"), 0.0)
        self._updates = 0

    def add(self, sums):
        """Adds one update's {nats, correct, weights, grad_norm}."""
        for name, value in sums.items():
            self._sums[name] += value
        self._updates += 1

    def log(self, step):
        """Closes the interval: writes and returns its metrics."""
        totals = self._task.totals("train", self._sums)
        values = {metric.name: float(metric.compute(totals)) for metric in self._metrics}
        values["grad_norm"] = self._sums["grad_norm"] / max(1, self._updates)
        self._clear()
        self._write({"step": step, "split": "train", **values})
        if self._events:
            self._events.write_scalars(step, {f"train/{name}": value for name, value in values.items()})
        return values

    def evaluated(self, step, results):
        """Writes the results of ``evaluate`` for several evaluations."""
        for name, result in results.items():
            values = {metric: entry["value"] for metric, entry in result["metrics"].items()}
            self._write({"step": step, "split": result["split"], "evaluation": name, **values})
            if self._events:
                self._events.write_scalars(step, {f"{name}/{metric}": value for metric, value in values.items()})

    def state(self):
        """What a checkpoint must remember."""
        return {"sums": self._sums, "updates": self._updates}

    def restore(self, step, state):
        """Continues after ``step``: later lines, left by a killed run, are dropped."""
        if state:
            self._sums, self._updates = state["sums"], state["updates"]
        if not self._writes:
            return
        self._lines = [entry for entry in self._read() if entry["step"] <= step]
        draft = self._path.with_suffix(".tmp")
        try:
            draft.write_text("".join(json.dumps(entry) + "\n" for entry in self._lines))
            os.replace(draft, self._path)
            self._file = self._path.open("a")
        except OSError as error:
            raise self._unwritable(error) from None

    def _read(self):
        """The lines on disk. The last one may have been cut off by a kill; any other must be one of ours."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        entries = []
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                entries.append({**entry, "step": int(entry["step"]), "split": str(entry["split"])})
            except (ValueError, TypeError, KeyError):
                if number < len(lines):
                    raise RunError(
                        f"{self._path}:{number} is no line of metrics; the checkpoints are not affected: move that "
                        "file away, and the same command continues with a learning curve that begins there"
                    ) from None
        return entries

    def _unwritable(self, error):
        return RunError(
            f"cannot write {self._path}: {error.strerror}; finished checkpoints are whole, and the same command "
            "continues from the newest"
        )

    def _write(self, entry):
        self._lines.append(entry)
        if not self._writes:
            return
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from None

    def curve(self):
        """The training lines as columns, thinned evenly to at most ``CURVE_POINTS``, the last one kept."""
        lines = [entry for entry in self._lines if entry["split"] == "train"]
        stride = -(-len(lines) // CURVE_POINTS) or 1
        lines = lines[::-1][::stride][::-1]
        names = ["step", *(metric.name for metric in self._metrics)]
        return {name: [entry[name] for entry in lines] for name in names}

    def close(self):
        """Closes the files."""
        if hasattr(self, "_file"):
            with contextlib.suppress(OSError):  # what could not be written was reported when it was tried
                self._file.close()
        if self._events:
            self._events.close()


def _summary_writer(folder):
    """clu's TensorBoard writer; None where TensorFlow is not installed."""
    try:
        from clu import metric_writers
    except ImportError:
        return None
    return metric_writers.SummaryWriter(str(folder))
