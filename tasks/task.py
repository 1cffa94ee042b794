"""What a task is: examples, metrics, and a name for both."""

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from tasks.metrics import Metric

if TYPE_CHECKING:
    from tasks.feeds import Feed

SPLITS = ("train", "validation", "test")

# Part of every fingerprint. Raise it whenever the same settings begin to give other examples.
FORMAT = 1


class DataError(ValueError):
    """Data or a data setting that cannot be used. The message is one line that says what was found and what to do."""


class NotPublished(DataError):
    """Other data than those that papers report on; as a sample they would do. found: what differs."""

    def __init__(self, found: str, allow: str = "set sample=True") -> None:
        super().__init__(f"{found}. Fetch it again, or {allow} to use it under the name of a sample")
        self.found = found


class Source(Protocol):
    """Examples addressed by their position: a pure function, so order, sharding and resuming are arithmetic."""

    def size(self, split: str) -> int | None:
        """Number of examples in one pass over the split; None where fresh ones never end."""
        ...

    def example(self, split: str, index: int, seed: int | None) -> Mapping[str, np.ndarray]:
        """Example number `index` (any integer from 0; later passes follow on) of the split as shuffled by `seed`.

        'targets' int32 [t] and 'weights' float32 [t] with 1 <= t <= length. seed None: the stored order.
        """
        ...

    def identity(self) -> Mapping[str, Any]:
        """The settings and data checksums that decide every example, as plain JSON values."""
        ...


@dataclass(frozen=True)
class Task:
    """A task, known to the trainer by these fields and `feed`.

    name        distinct for distinct settings; also the name in seqio's registry
    length      tokens in a row of a batch
    vocabulary  number of ids; every id is below it
    metrics     the first is the one that the paper reports
    """

    name: str
    length: int
    vocabulary: int
    metrics: tuple[Metric, ...]
    source: Source

    def fingerprint(self) -> str:
        """16 hex digits that change with the settings, the data, or the way in which examples are made of them."""
        facts = {"format": FORMAT, "name": self.name, "length": self.length, "vocabulary": self.vocabulary}
        text = json.dumps({**facts, "source": dict(self.source.identity())}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def feed(
        self,
        split: str,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        pipeline: Literal["auto", "seqio", "numpy"] = "auto",
    ) -> "Feed":
        """Batches of a split: see `tasks.feeds.Feed`.

        seed      order of the training data; validation and test sets are the same for every seed
        shard     (this reader's number, number of readers): the readers' batches are disjoint and complete
        pipeline  'seqio' goes through the registered seqio Task, 'numpy' reads the source directly. Both give the same
                  batches; 'auto' takes seqio where it is installed.
        """
        from tasks.feeds import open_feed

        return open_feed(self, split, batch_size, seed, shard, pipeline)

    def totals(self, split: str, sums: Mapping[str, float]) -> Mapping[str, float]:
        """The sums counted on a split, for its metrics, with what only the task knows added to them."""
        return sums

    def specimen(self, batch_size: int = 1) -> "dict[str, np.ndarray]":
        """A batch of zeros with the names, shapes and types of every batch."""
        from tasks.feeds import fill

        return fill({}, batch_size, self.length)

    def register(self):
        """The seqio Task of this name, registered on the first call; afterwards `seqio.get_mixture_or_task` has it."""
        from tasks.registry import register

        return register(self)


def check_split(split: str) -> None:
    if split not in SPLITS:
        near = difflib.get_close_matches(str(split), SPLITS, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DataError(f"split {split!r} is none of {', '.join(SPLITS)}{hint}")


def check_integer(name: str, value: Any, least: int, below: int = 2**31) -> int:
    """`value` as an int if it is a whole number in [least, below). DataError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < below:
        raise DataError(f"{name} must be a whole number from {least} to {below - 1}, got {value!r}")
    return int(value)
