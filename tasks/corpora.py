"""The five corpora of the Memorizing Transformers (section 4.1, Table 4): long documents, read in order.

    arxiv     papers in mathematics, as LaTeX; a document is a paper
    pg19      books published before 1919
    c4_4k     web pages of at least 4096 tokens
    github    source code in six languages; a document is a repository
    isabelle  formal proofs; a document is an entry of the archive, its theories in the order of their imports

All are built alike, from a directory (`tasks.texts` says what may lie there) and a vocabulary (`tasks.codecs`):

    path            the directory. None gives a task that knows its shapes but has no data
    vocabulary      'bytes', the path of a SentencePiece model, or a number of ids: shapes without data
    length          tokens in a segment
    predict_first   False: the first token of a segment is never predicted, as in the authors' code (`tasks.documents`)

The texts are tokenised once (`tasks.tokenised`); what was left out is told in one line. arXiv, GitHub and Isabelle were
never released, so no one can say whether a directory holds the authors' data: the task's name ends with a checksum
of the texts instead.
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tasks import metrics, randomness
from tasks.codecs import Codec, codec
from tasks.documents import DocumentTask
from tasks.logs import say
from tasks.task import SPLITS, DataError, check_integer, check_split
from tasks.texts import Layout, find_texts
from tasks.theories import imports_first
from tasks.tokenised import Tokens, open_tokens, told

CODE = (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".java", ".py", ".go", ".ts", ".tsx")
LAYOUTS = {
    "arxiv": Layout((".tex",)),
    "pg19": Layout((".txt",), dataset=("pg19", "book_text")),
    "c4_4k": Layout((".txt",), dataset=("c4", "text"), shards="c4", splits=("train", "validation")),
    "github": Layout(CODE),
    "isabelle": Layout((".thy",), arrange=imports_first, inside="thys"),
}
BOOKS = {"train": 28602, "validation": 50, "test": 100}  # of PG-19, as published


@dataclass(frozen=True)
class Corpus:
    """The `tasks.documents.Documents` of tokenised texts; `splits` is None if there are no data."""

    kind: str
    vocabulary: str
    least: int
    sha256: tuple[str, ...]
    codec: Codec = field(repr=False, compare=False)
    splits: Mapping[str, Tokens] | None = field(default=None, repr=False, compare=False)

    def size(self, split: str) -> int:
        return len(self._split(split).lengths)

    def lengths(self, split: str) -> np.ndarray:
        return self._split(split).lengths

    def tokens(self, split: str, document: int, start: int, stop: int) -> np.ndarray:
        part = self._split(split)
        begin, end = int(part.bounds[document]), int(part.bounds[document + 1])
        return part.ids[begin + start : min(begin + stop, end)].astype(np.int32)

    def example(self, split: str, index: int, seed: int | None) -> dict[str, np.ndarray]:
        """A whole document: 'targets' int32 [t], 'weights' float32 [t] of ones."""
        document = randomness.place(self.size(split), index, seed)
        targets = self.tokens(split, document, 0, int(self.lengths(split)[document]))
        return {"targets": targets, "weights": np.ones(len(targets), np.float32)}

    def names(self, split: str) -> list[str]:
        """The documents' names, in the stored order."""
        return self._split(split).names

    def text(self, ids: np.ndarray) -> str:
        return self.codec.decode(ids)

    def bytes_per_token(self, split: str) -> float:
        facts = self._split(split).facts
        return facts["bytes"] / facts["tokens"]

    def facts(self, split: str) -> dict[str, Any]:
        """Counts of a split, and what was left out of it (`tasks.tokenised.tokenise`)."""
        return self._split(split).facts

    def identity(self) -> dict[str, object]:
        self._split("train")
        return {"kind": self.kind, "vocabulary": self.vocabulary, "least": self.least, "sha256": list(self.sha256)}

    def _split(self, split: str) -> Tokens:
        check_split(split)
        if self.splits is None:
            raise DataError(f"{self.kind}: no path to the data was given; set {self.kind}'s `path` to a directory")
        return self.splits[split]


def arxiv(
    path: str | None = None, vocabulary: str | int = "bytes", length: int = 512, predict_first: bool = True
) -> DocumentTask:
    """Papers in mathematics: .tex files. A folder is one document, its files by path."""
    return _task("arxiv", path, vocabulary, length, predict_first)


def pg19(
    path: str | None = None,
    vocabulary: str | int = "bytes",
    length: int = 512,
    predict_first: bool = True,
    sample: bool = False,
) -> DocumentTask:
    """Books: .txt files, or TFDS's pg19. sample: accept other numbers of books than 28,602, 50 and 100."""
    task = _task("pg19", path, vocabulary, length, predict_first)
    if path is not None and not sample:
        found = {split: task.source.size(split) for split in SPLITS}
        if found != BOOKS:
            held, wanted = (" / ".join(f"{count:,}" for count in counts.values()) for counts in (found, BOOKS))
            raise DataError(
                f"pg19: {path} has {held} books (train / validation / test) where PG-19 has {wanted}. Fetch it again, "
                "or set sample=True to use it as a sample"
            )
    return task


def c4_4k(
    path: str | None = None,
    vocabulary: str | int = "bytes",
    length: int = 512,
    predict_first: bool = True,
    least: int = 4096,
) -> DocumentTask:
    """Web pages of at least `least` tokens in the vocabulary in use: C4's JSON shards, or TFDS's c4.

    C4 holds out one set only: 'test' is its validation set again.
    """
    least = check_integer("c4_4k: least", least, least=1)
    return _task("c4_4k", path, vocabulary, length, predict_first, least)


def github(
    path: str | None = None, vocabulary: str | int = "bytes", length: int = 512, predict_first: bool = True
) -> DocumentTask:
    """Repositories: C, C++, Java, Python, Go and TypeScript. A .jsonl or a folder is one document, in its own order."""
    return _task("github", path, vocabulary, length, predict_first)


def isabelle(
    path: str | None = None, vocabulary: str | int = "bytes", length: int = 512, predict_first: bool = True
) -> DocumentTask:
    """Formal proofs: .thy files. A folder (one entry of the archive) is one document, imported theories first."""
    return _task("isabelle", path, vocabulary, length, predict_first)


@dataclass(frozen=True)
class TrainingTexts:
    """Iterable over the texts of a corpus's training split, read anew each time: what a vocabulary is trained on."""

    kind: str
    path: str

    def __iter__(self) -> Iterator[str]:
        for _, text in find_texts(self.path, self.kind, LAYOUTS[self.kind]).documents("train", Counter()):
            yield text


def _task(
    kind: str, path: str | None, vocabulary: str | int, length: int, predict_first: bool, least: int = 1
) -> DocumentTask:
    length = check_integer(f"{kind}: length", length, least=1 if predict_first else 2)
    try:
        ids = codec(vocabulary)
        corpus = Corpus(kind, ids.name, least, (), ids) if path is None else _read(kind, path, ids, least)
    except DataError as error:
        raise DataError(str(error) if str(error).startswith(kind) else f"{kind}: {error}") from None
    name = f"{kind}.{ids.name}"
    name += f".length{length}" * (length != 512)
    name += ".first_unpredicted" * (not predict_first)
    if corpus.splits:
        name += f".data_{hashlib.sha256(' '.join(corpus.sha256).encode()).hexdigest()[:8]}"
    return DocumentTask(name, length, ids.size, _metrics(ids), corpus, predict_first)


def _metrics(ids: Codec) -> tuple[metrics.Metric, ...]:
    bits = metrics.BITS_PER_BYTE if ids.per_byte else metrics.BITS_PER_BYTE_OF_TEXT
    return metrics.PERPLEXITY_PER_TOKEN, metrics.NATS_PER_TOKEN, bits, metrics.ACCURACY


def _read(kind: str, path: str, ids: Codec, least: int) -> Corpus:
    parts = open_tokens(find_texts(path, kind, LAYOUTS[kind]), LAYOUTS[kind].splits, ids, least, kind)
    notes: Counter[tuple[str, str]] = Counter()
    for part in parts.values():
        notes.update({(what, reason): count for what, reason, count in part.facts["notes"]})
    _tell(f"{kind}: {path}: {told(notes)}" if notes else "")
    held_out = {split: parts.get(split, parts["validation"]) for split in SPLITS}
    return Corpus(kind, ids.name, least, tuple(part.facts["sha256"] for part in parts.values()), ids, held_out)


@functools.lru_cache(maxsize=64)
def _tell(line: str) -> None:
    """Says a line once: every evaluation of a config builds its own task."""
    if line:
        say(line)
