"""Tasks of sentence pairs: a source to read, a target to write. Batches hold pairs of like length.

A batch is a dictionary of arrays, with seqio's names; b rows, l = the bucket's length, the same for both sides:

    encoder_input_tokens   int32   [b, l]  the source, ended by EOS
    encoder_segment_ids    int32   [b, l]  1 on tokens, 0 on padding
    decoder_target_tokens  int32   [b, l]  the target, ended by EOS
    decoder_input_tokens   int32   [b, l]  the target shifted right by one, beginning with 0
    decoder_loss_weights   float32 [b, l]  1 on the target's tokens, EOS included
    decoder_segment_ids    int32   [b, l]  1 on tokens, 0 on padding

A bucket of half the length has twice the rows, so every batch has the same number of padded positions.
"""

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tasks.bitexts import Bitext
from tasks.buckets import Batches, lengths_between, plan
from tasks.metrics import Metric
from tasks.pairtokens import Tokens, tokenised
from tasks.subwords import EOS, Subwords
from tasks.task import SPLITS, DataError, check_integer, check_split

Batch = dict[str, np.ndarray]
FEATURES = {
    "encoder_input_tokens": np.int32,
    "encoder_segment_ids": np.int32,
    "decoder_target_tokens": np.int32,
    "decoder_input_tokens": np.int32,
    "decoder_loss_weights": np.float32,
    "decoder_segment_ids": np.int32,
}
FORMAT = 1  # part of every fingerprint; raise it whenever the same settings begin to give other batches


@dataclass(frozen=True)
class PairTask:
    """A task of sentence pairs; to the trainer like `tasks.task.Task`.

    length    tokens of the longest training pair's longer side; the longest bucket of training
    shortest  the shortest bucket
    longest   the longest bucket of evaluation
    """

    name: str
    length: int
    vocabulary: int
    metrics: tuple[Metric, ...]
    shortest: int
    longest: int
    bitexts: tuple[Bitext, ...] | None = field(repr=False, compare=False)  # train, validation, test
    subwords: Subwords | None = field(repr=False, compare=False)

    def fingerprint(self) -> str:
        """16 hex digits that change with the settings, the texts, the vocabulary, or the way batches are made."""
        facts = {
            "format": FORMAT,
            "name": self.name,
            "lengths": [self.shortest, self.length, self.longest],
            "texts": [self.bitext(split).sha256 for split in SPLITS],
            "vocabulary": self.words().sha256,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def feed(
        self,
        split: str,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        pipeline: str = "auto",
    ) -> "PairFeed":
        """Batches of a split; the arguments are those of `tasks.task.Task.feed`.

        batch_size  rows of a batch of `length`; shorter buckets have more, longer ones (in evaluation) as many
        pipeline    'auto' or 'numpy'; seqio's own bucketing could not be resumed exactly
        """
        if pipeline not in ("auto", "numpy"):
            raise DataError(f"{self.name}: pipeline must be 'auto' or 'numpy', got {pipeline!r}")
        return PairFeed(self, split, batch_size, seed, shard)

    def specimen(self, batch_size: int = 1) -> Batch:
        """A batch of zeros of the longest training bucket: names, shapes and types."""
        return _zeros(batch_size, self.length)

    def totals(self, split: str, sums):
        """The sums counted on a split, for its metrics; nothing is added to them."""
        return sums

    def register(self):
        """The seqio Task of this name, registered on the first call."""
        from tasks.pairs_seqio import register

        return register(self)

    def references(self, split: str) -> list[tuple[str, str]]:
        """(source, reference) of every pair of a split, also of those too long for the feed, in the stored order."""
        return list(self.bitext(split))

    def texts(self, split: str) -> "Sentences":
        """All sentences of a split, of both languages: what a vocabulary is trained on."""
        return Sentences(self.bitext(split))

    def encode(self, text: str) -> np.ndarray:
        """int32 [t]: a source sentence as the model reads it, ended by EOS."""
        return np.array([*self.words().encode([text])[0], EOS], np.int32)

    def decode(self, ids) -> str:
        """The sentence of target ids [t], up to the first EOS."""
        return self.words().decode(ids)

    def bitext(self, split: str) -> Bitext:
        check_split(split)
        if self.bitexts is None:
            raise DataError(f"{self.name}: no path to the data was given; set the task's `path`")
        return self.bitexts[SPLITS.index(split)]

    def words(self) -> Subwords:
        if self.subwords is None:
            raise DataError(
                f"{self.name}: no vocabulary was given; make one with `repro data vocab` and set `vocabulary`"
            )
        return self.subwords

    def tokens(self, split: str) -> Tokens:
        """The split's tokenised pairs, those left out said and counted in the log."""
        strict = split == "train"  # an evaluation leaves out nothing but what is too long
        return tokenised(self.bitext(split), self.words(), self.length if strict else self.longest, strict, self.name)


@dataclass(frozen=True)
class Sentences:
    """Iterable, as often as wanted, over the sentences of both sides."""

    bitext: Bitext

    def __iter__(self) -> Iterator[str]:
        for pair in self.bitext:
            yield from pair


class PairFeed(Iterator[Batch]):
    """Iterator over batches; their shape depends on the bucket.

    'train' never ends: each pass has its own order of pairs and of batches, a function of (seed, pass). 'validation'
    and 'test' give every pair once, in an order that never changes. Where a bucket's pairs do not fill its last batch
    they go to the next longer one; what the longest is short of is filled with rows of zeros (weight 0, segment 0).
    Readers share each batch's rows among them: they all have the same bucket at the same step.
    """

    def __init__(self, task: PairTask, split: str, batch_size: int, seed: int, shard: tuple[int, int]):
        check_split(split)
        self.task, self.split = task, split
        self.batch_size = check_integer("batch_size", batch_size, least=1)
        self.seed = check_integer("seed", seed, least=0, below=2**63)
        reader, readers = shard
        self._readers = check_integer("number of shards", readers, least=1)
        self._reader = check_integer("shard", reader, least=0, below=readers)
        self._tokens = task.tokens(split)  # whatever is wrong with the data is said here, not at the first step
        self._buckets = lengths_between(task.shortest, task.length if split == "train" else task.longest)
        self._plans = functools.lru_cache(maxsize=2)(self._plan)
        self._pass, self._batch = 0, 0

    def _plan(self, number: int) -> Batches:
        rows = [self.batch_size * self._readers * max(1, self.task.length // length) for length in self._buckets]
        shuffled = (self.seed, number) if self.split == "train" else None
        return plan(self._tokens.lengths, self._buckets, rows, shuffled)

    def __next__(self) -> Batch:
        if self._batch == len(self._plans(self._pass)):
            if self.split != "train":
                raise StopIteration
            self._pass, self._batch = self._pass + 1, 0
        bucket, indices = self._plans(self._pass)[self._batch]
        self._batch += 1
        length = self._buckets[bucket]
        batch = _zeros(self.batch_size * max(1, self.task.length // length), length)
        for row, index in enumerate(indices[self._reader :: self._readers]):
            _write(batch, row, *self._tokens.pair(index))
        return batch

    def state(self) -> str:
        """Where the feed stands, as a short JSON text."""
        return json.dumps({**self._who(), "pass": self._pass, "batch": self._batch})

    def restore(self, state: str) -> None:
        """Go on exactly where a feed of the same task, split, seed and global batch stood. DataError for another's."""
        try:
            saved = dict(json.loads(state))
            where = [check_integer(key, saved.pop(key), least=0, below=2**63) for key in ("pass", "batch")]
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"not a feed's state: {state!r} ({error})") from None
        if saved != self._who():
            raise DataError(f"the state belongs to another feed: it was saved by {saved}, this is {self._who()}")
        self._pass, self._batch = where

    def _who(self) -> dict[str, Any]:
        rows = self.batch_size * self._readers
        return {"task": self.task.name, "split": self.split, "seed": self.seed, "rows": rows}


def _zeros(rows: int, length: int) -> Batch:
    return {name: np.zeros((rows, length), kind) for name, kind in FEATURES.items()}


def _write(batch: Batch, row: int, source: np.ndarray, target: np.ndarray) -> None:
    batch["encoder_input_tokens"][row, : len(source)] = source
    batch["encoder_segment_ids"][row, : len(source)] = 1
    batch["decoder_target_tokens"][row, : len(target)] = target
    batch["decoder_input_tokens"][row, 1 : len(target)] = target[:-1]
    batch["decoder_loss_weights"][row, : len(target)] = 1
    batch["decoder_segment_ids"][row, : len(target)] = 1
