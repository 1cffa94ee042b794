"""Feeds: batches of a task in a fixed order, that can stop anywhere and go on exactly there.

A batch is a dictionary of arrays, with seqio's names; b = batch_size rows, l = length:

    decoder_target_tokens  int32   [b, l]  what to predict
    decoder_input_tokens   int32   [b, l]  the targets shifted right by one, beginning with 0
    decoder_loss_weights   float32 [b, l]  0 where a position does not count
    decoder_segment_ids    int32   [b, l]  1 on tokens, 0 on padding (an id of 0 may be a real token)
"""

import importlib.util
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tasks.task import DataError, Source, Task, check_integer, check_split

if TYPE_CHECKING:
    from collections.abc import Mapping

Batch = dict[str, np.ndarray]
FEATURES = {
    "decoder_target_tokens": np.int32,
    "decoder_input_tokens": np.int32,
    "decoder_loss_weights": np.float32,
    "decoder_segment_ids": np.int32,
}


class Feed(Iterator[Batch]):
    """Iterator over batches, all of the same shape.

    'train' never ends. 'validation' and 'test' give every example once; the last batch is filled up with rows of zeros
    (weight 0, segment 0), and with several readers each gives the same number of batches.

    Examples are addressed by position, so the state is one position (the first example that no reader has given out),
    whichever pipeline made the batches, and restoring costs the same at step 150,000 as at step 1.
    """

    def __init__(
        self,
        task: Task,
        split: str,
        batch_size: int,
        seed: int,
        shards: int,
        batches: Callable[[int], Iterator[Batch]],
    ):
        """batches(position): this reader's batches from that position of the stream on; the last may be short."""
        self.task, self.split, self.batch_size, self.seed = task, split, batch_size, seed
        self._stride = batch_size * shards
        size = task.source.size(split)  # asked in any case: a task without data says so here, not at the first step
        self._size = None if split == "train" else size
        self._open = batches
        self._seek(0)

    def _seek(self, position: int) -> None:
        self._position = position
        self._batches: Iterator[Batch] | None = None  # opened by the first batch: making a feed costs nothing

    def __next__(self) -> Batch:
        if self._size is not None and self._position >= self._size:
            raise StopIteration
        if self._batches is None:
            self._batches = self._open(self._position)
        if self._size is None:
            batch = next(self._batches)
        else:  # another reader may have examples left when this one has none; all give the same number of batches
            batch = fill(next(self._batches, {}), self.batch_size, self.task.length)
        check_ids(batch, self.task, self.split, self._position)
        self._position += self._stride
        return batch

    def state(self) -> str:
        """Where the feed stands, as a short JSON text."""
        return json.dumps({**self._who(), "position": self._position})

    def restore(self, state: str) -> None:
        """Go on exactly where a feed of the same task, split and seed stood. DataError for any other state."""
        try:
            saved = dict(json.loads(state))
            position = check_integer("position", saved.pop("position"), least=0, below=2**63)
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"not a feed's state: {state!r} ({error})") from None
        if saved != self._who():
            raise DataError(f"the state belongs to another feed: it was saved by {saved}, this is {self._who()}")
        self._seek(position)

    def _who(self) -> dict[str, object]:
        return {"task": self.task.name, "split": self.split, "seed": self.seed}


def open_feed(task: Task, split: str, batch_size: int, seed: int, shard: tuple[int, int], pipeline: str) -> Feed:
    """The feed behind `Task.feed`, which explains the arguments."""
    check_split(split)
    batch_size = check_integer("batch_size", batch_size, least=1)
    seed = check_integer("seed", seed, least=0, below=2**63)
    reader, readers = shard
    readers = check_integer("number of shards", readers, least=1)
    reader = check_integer("shard", reader, least=0, below=readers)
    if pipeline == "auto":
        pipeline = "seqio" if importlib.util.find_spec("seqio") else "numpy"

    def direct(position: int) -> Iterator[Batch]:
        return numpy_batches(task.source, task.length, split, batch_size, seed, reader, readers, position)

    def through_seqio(position: int) -> Iterator[Batch]:
        from tasks.registry import seqio_batches

        return seqio_batches(task, split, batch_size, seed, reader, readers, position)

    ways = {"numpy": direct, "seqio": through_seqio}
    if pipeline not in ways:
        raise DataError(f"pipeline must be 'auto', 'seqio' or 'numpy', got {pipeline!r}")
    return Feed(task, split, batch_size, seed, readers, ways[pipeline])


def numpy_batches(
    source: Source, length: int, split: str, batch_size: int, seed: int, reader: int, readers: int, position: int
) -> Iterator[Batch]:
    """Batches read straight from the source; the last one of a fixed set may have fewer rows."""
    size = None if split == "train" else source.size(split)
    order = seed if split == "train" else None
    first = position + reader
    while size is None or first < size:
        last = first + batch_size * readers
        indices = range(first, last if size is None else min(last, size), readers)
        yield assemble([source.example(split, index, order) for index in indices], length)
        first = last


def assemble(examples: "list[Mapping[str, np.ndarray]]", length: int) -> Batch:
    """Batch of [len(examples), length] from examples of at most `length` tokens, padded behind."""
    batch = {name: np.zeros((len(examples), length), kind) for name, kind in FEATURES.items()}
    targets, inputs, weights, segments = batch.values()
    for row, example in enumerate(examples):
        count = len(example["targets"])
        targets[row, :count] = example["targets"]
        inputs[row, 1:count] = example["targets"][:-1]
        weights[row, :count] = example["weights"]
        segments[row, :count] = 1
    return batch


def fill(batch: Batch, rows: int, length: int) -> Batch:
    """The batch with rows of zeros behind it, so that it has `rows` rows; {} stands for a batch of none."""
    if batch and len(batch["decoder_target_tokens"]) == rows:
        return batch
    whole = {name: np.zeros((rows, length), kind) for name, kind in FEATURES.items()}
    for name, part in batch.items():
        whole[name][: len(part)] = part
    return whole


def check_ids(batch: Batch, task: Task, split: str, position: int) -> None:
    """DataError unless every token is an id of the vocabulary: an index out of range would be clamped in silence."""
    tokens = batch["decoder_target_tokens"]
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= task.vocabulary:
        wrong = least if least < 0 else most
        raise DataError(
            f"{task.name}: token id {wrong} in the {split} batch at example {position}, but the vocabulary has "
            f"{task.vocabulary} ids (0 to {task.vocabulary - 1}); the data and the vocabulary do not belong together"
        )
