"""Copy-reverse: read symbols, write them in reverse order. An acceptance test for encoder-decoders, from no paper.

The source holds 1 to length - 1 symbols drawn uniformly, the target the same from the last to the first; both are ended
by EOS. Which symbol comes next is never a guess, so a model that works is right at every position.

Sentences are numbers with spaces between them, so that translations can be decoded and scored like real ones.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tasks import randomness
from tasks.feeds import Batch, Feed
from tasks.metrics import ACCURACY, NATS_PER_TOKEN
from tasks.pairs import FEATURES
from tasks.subwords import EOS
from tasks.task import SPLITS, DataError, Task, check_integer, check_split

FIRST = EOS + 1  # id of the first symbol; 0 is padding, and what every target begins to read with


@dataclass(frozen=True)
class Reversals:
    """Source of pairs: endless for training, `examples` fixed ones each for validation and test."""

    length: int
    symbols: int
    examples: int

    def size(self, split: str) -> int | None:
        check_split(split)
        return None if split == "train" else self.examples

    def example(self, split: str, index: int, seed: int | None) -> dict[str, np.ndarray]:
        """'inputs' and 'targets', int32 [t] both, 2 <= t <= length, EOS included."""
        if split == "train":
            key = 0 if seed is None else seed
        else:  # the fixed sets do not depend on the seed; it only orders them
            key, index = 0, randomness.place(self.examples, index, seed)
        count, *bits = randomness.draws(key, split, index, self.length)
        # The remainder of a 64-bit number favours no symbol by more than symbols / 2**64.
        word = FIRST + (np.array(bits) % np.uint64(self.symbols))[: 1 + int(count) % (self.length - 1)].astype(np.int32)
        return {"inputs": np.append(word, EOS).astype(np.int32), "targets": np.append(word[::-1], EOS).astype(np.int32)}

    def identity(self) -> dict[str, object]:
        return {"kind": "copyreverse", **asdict(self)}


@dataclass(frozen=True)
class ReversalTask(Task):
    """The task; batches have the features of `tasks.pairs`, all of `length` columns."""

    def feed(
        self, split: str, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1), pipeline: str = "auto"
    ) -> Feed:
        """Batches of a split: see `tasks.task.Task.feed`; 'auto' and 'numpy' both read the source directly."""
        if pipeline not in ("auto", "numpy"):
            raise DataError(f"{self.name}: pipeline must be 'auto' or 'numpy', got {pipeline!r}")
        check_split(split)
        batch_size = check_integer("batch_size", batch_size, least=1)
        seed = check_integer("seed", seed, least=0, below=2**63)
        readers = check_integer("number of shards", shard[1], least=1)
        reader = check_integer("shard", shard[0], least=0, below=readers)
        size, order = self.source.size(split), seed if split == "train" else None

        def batches(position: int) -> Iterator[Batch]:
            while True:
                indices = range(position + reader, position + batch_size * readers, readers)
                yield self._batch(
                    [self.source.example(split, i, order) for i in indices if size is None or i < size], batch_size
                )
                position += batch_size * readers

        return Feed(self, split, batch_size, seed, readers, batches)

    def specimen(self, batch_size: int = 1) -> Batch:
        """A batch of zeros with the names, shapes and types of every batch."""
        return self._batch([], batch_size)

    def _batch(self, examples, rows: int) -> Batch:
        batch = {name: np.zeros((rows, self.length), kind) for name, kind in FEATURES.items()}
        for row, example in enumerate(examples):
            source, target, count = example["inputs"], example["targets"], len(example["inputs"])
            batch["encoder_input_tokens"][row, :count] = source
            batch["decoder_target_tokens"][row, :count] = target
            batch["decoder_input_tokens"][row, 1:count] = target[:-1]
            for name in ("encoder_segment_ids", "decoder_segment_ids", "decoder_loss_weights"):
                batch[name][row, :count] = 1
        return batch

    def references(self, split: str) -> list[tuple[str, str]]:
        """(source, reference) of every pair of a fixed split, in the stored order."""
        size = self.source.size(split)
        if size is None:
            raise DataError(f"{self.name}: the training pairs never end; ask for validation or test")
        pairs = (self.source.example(split, index, None) for index in range(size))
        return [(self.decode(pair["inputs"]), self.decode(pair["targets"])) for pair in pairs]

    def encode(self, text: str) -> np.ndarray:
        """int32 [t]: numbers from 0 to symbols - 1 as the model reads them, ended by EOS."""
        try:
            numbers = [int(word) for word in text.split()]
        except ValueError:
            raise DataError(f"{self.name}: sentences are numbers with spaces between them, got {text!r}") from None
        if not all(0 <= number < self.vocabulary - FIRST for number in numbers):
            raise DataError(f"{self.name}: symbols are 0 to {self.vocabulary - FIRST - 1}, got {text!r}")
        return np.array([*(FIRST + number for number in numbers), EOS], np.int32)

    def decode(self, ids) -> str:
        """The numbers of target ids [t] up to the first EOS; padding is left out."""
        ids = np.asarray(ids)
        ended = np.flatnonzero(ids == EOS)
        ids = ids[: ended[0]] if len(ended) else ids
        return " ".join(str(one - FIRST) for one in ids.tolist() if one >= FIRST)

    def register(self) -> Any:
        """The seqio Task of this name, registered on the first call; 'train' is one pass of `examples` pairs."""
        from tasks.registry import library

        seqio, tf = library()
        if self.name in seqio.TaskRegistry.names():
            return seqio.TaskRegistry.get(self.name)
        signature = {side: tf.TensorSpec([None], tf.int32) for side in ("inputs", "targets")}

        def dataset(split, shuffle_files=False, seed=None):
            del shuffle_files  # the source shuffles
            count = self.source.size("test")
            pairs = lambda: (self.source.example(split, index, seed) for index in range(count))  # noqa: E731
            return tf.data.Dataset.from_generator(pairs, output_signature=signature)

        feature = seqio.Feature(seqio.PassThroughVocabulary(self.vocabulary, EOS), add_eos=False, dtype=tf.int32)
        return seqio.TaskRegistry.add(
            self.name,
            source=seqio.FunctionDataSource(dataset, splits=SPLITS),
            preprocessors=[],
            output_features={"inputs": feature, "targets": feature},
            metric_fns=[],
        )


def copyreverse(length: int = 32, symbols: int = 64, examples: int = 512) -> ReversalTask:
    """The task of reversing words.

    length    tokens of the longest source and target, EOS included
    symbols   number of symbols; the vocabulary is symbols + 2, for padding and EOS
    examples  number of fixed examples in each of validation and test
    """
    length = check_integer("copyreverse: length", length, least=2)
    symbols = check_integer("copyreverse: symbols", symbols, least=1)
    examples = check_integer("copyreverse: examples", examples, least=1)
    settings = {"length": (length, 32), "symbols": (symbols, 64), "examples": (examples, 512)}
    name = ".".join(["copyreverse", *(f"{key}{value}" for key, (value, usual) in settings.items() if value != usual)])
    source = Reversals(length, symbols, examples)
    return ReversalTask(name, length, symbols + FIRST, (ACCURACY, NATS_PER_TOKEN), source)
