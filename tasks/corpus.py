"""A corpus as a task's source: whole documents, pieces of them, and the texts behind them."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tasks import randomness
from tasks.codecs import UNMADE, Codec
from tasks.task import DataError, check_split
from tasks.texts import Texts
from tasks.tokenised import Tokens


@dataclass(frozen=True)
class Reading:
    """Iterable over the texts of a split, which are read anew each time."""

    texts: Texts
    split: str

    def __iter__(self) -> Iterator[str]:
        for _, text in self.texts.documents(self.split, Counter()):
            yield text


@dataclass(frozen=True)
class Corpus:
    """The `tasks.documents.Documents` of tokenised texts.

    source is None if there are no data, splits as well if there is no vocabulary.
    """

    kind: str
    vocabulary: str
    least: int
    sha256: tuple[str, ...]
    codec: Codec = field(repr=False, compare=False)
    source: Texts | None = field(default=None, repr=False, compare=False)
    splits: Mapping[str, Tokens] | None = field(default=None, repr=False, compare=False)

    def size(self, split: str) -> int:
        return len(self._split(split).lengths)

    def lengths(self, split: str) -> np.ndarray:
        return self._split(split).lengths

    def tokens(self, split: str, document: int, start: int, stop: int) -> np.ndarray:
        part = self._split(split)
        begin, end = int(part.bounds[document]), int(part.bounds[document + 1])
        return part.ids[begin + start : min(begin + stop, end)].astype(np.int32)

    def weights(self, split: str, document: int, start: int, stop: int) -> np.ndarray:
        stop = min(stop, int(self._split(split).lengths[document]))
        return np.ones(max(0, stop - start), np.float32)

    def example(self, split: str, index: int, seed: int | None) -> dict[str, np.ndarray]:
        """A whole document: 'targets' int32 [t], 'weights' float32 [t] of ones."""
        document = randomness.place(self.size(split), index, seed)
        targets = self.tokens(split, document, 0, int(self.lengths(split)[document]))
        return {"targets": targets, "weights": np.ones(len(targets), np.float32)}

    def names(self, split: str) -> list[str]:
        """The documents' names, in the stored order."""
        return self._split(split).names

    def encode(self, text: str) -> np.ndarray:
        """int32 [t]: the ids of a text."""
        return self.codec.encode(text)

    def text(self, ids: np.ndarray) -> str:
        return self.codec.decode(ids)

    def bytes_per_token(self, split: str) -> float:
        facts = self._split(split).facts
        return facts["bytes"] / facts["tokens"]

    def facts(self, split: str) -> dict[str, Any]:
        """Counts of a split, and what was left out of it (`tasks.tokenised.tokenise`)."""
        return self._split(split).facts

    def texts(self, split: str) -> Reading:
        """All texts of a split, before any is left out: what a vocabulary is made of."""
        check_split(split)
        return Reading(self._texts(), split)

    @property
    def label(self) -> str:
        """8 hex digits that tell texts apart."""
        return hashlib.sha256(" ".join(self.sha256).encode()).hexdigest()[:8]

    def identity(self) -> dict[str, object]:
        self._split("train")
        return {"kind": self.kind, "vocabulary": self.vocabulary, "least": self.least, "sha256": list(self.sha256)}

    def _split(self, split: str) -> Tokens:
        check_split(split)
        if self.splits is None:
            self._texts()
            raise DataError(f"{self.kind}: {UNMADE}")
        return self.splits[split]

    def _texts(self) -> Texts:
        if self.source is None:
            raise DataError(f"{self.kind}: no path to the data was given; set {self.kind}'s `path` to a directory")
        return self.source
