"""enwik8-64K (Reformer, section 5): Wikipedia as bytes, in windows of 65,536.

enwik8 is the first 100,000,000 bytes of the English Wikipedia dump of 3 March 2006. The customary split is by bytes:
90M train, 5M validation, 5M test. The metric is bits per byte. (The paper says bits/dim and does not say whether its
5,000,000 units are bytes or characters; the official generator counts bytes under Python 2, characters under Python 3.)

Windows of validation and test are disjoint and begin without context; the last is padded, and padding is not scored
(the public official configuration scores it). `overlap` 4 gives the official training windows, which begin every
16,384 bytes.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from tasks import randomness
from tasks.bytefiles import Parts, read_parts
from tasks.metrics import ACCURACY, BITS_PER_BYTE
from tasks.task import SPLITS, DataError, NotPublished, Task, check_integer, check_split
from tasks.vocabularies import BYTE_IDS, byte_ids, bytes_of

SIZE = 100_000_000
# Of the 100,000,000 bytes, as published with the Large Text Compression Benchmark's file (md5
# a1fa5ffddb56f4953e226637dabbb36a, sha1 57b8363b814821dc9d47aa4d41f58733519076b2); many independent users print it.
SHA256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"

ORIGIN = "enwik8.zip comes from Matt Mahoney's text compression benchmark (mattmahoney.net/dc/textdata.html)"


@dataclass(frozen=True)
class Corpus:
    """train, validation and test bytes, uint8 [n] each, and the SHA-256 of all of them together."""

    parts: Parts = field(repr=False, compare=False)
    sizes: tuple[int, ...]
    sha256: str

    @property
    def genuine(self) -> bool:
        """Whether this is the whole enwik8 in its customary split."""
        return self.sha256 == SHA256 and self.sizes == (SIZE - 2 * (SIZE // 20), SIZE // 20, SIZE // 20)

    @property
    def label(self) -> str:
        """8 hex digits that tell samples apart, by their bytes and by where they are split."""
        return hashlib.sha256(f"{self.sizes} {self.sha256}".encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Windows:
    """Source of windows of at most `length` bytes; training windows begin every length / overlap bytes."""

    length: int
    overlap: int
    corpus: Corpus | None

    def size(self, split: str) -> int:
        data, stride = self._data(split), self._stride(split)
        # Every byte is in a window, and only the last window is short.
        return 1 + max(0, -(-(len(data) - self.length) // stride))

    def example(self, split: str, index: int, seed: int | None) -> dict[str, np.ndarray]:
        """'targets' int32 [t], 'weights' float32 [t] of ones; t is `length`, or less in the last window."""
        start = self._stride(split) * randomness.place(self.size(split), index, seed)
        targets = byte_ids(self._data(split)[start : start + self.length])
        return {"targets": targets, "weights": np.ones(len(targets), np.float32)}

    def identity(self) -> dict[str, object]:
        corpus = self._corpus()
        settings = {"length": self.length, "overlap": self.overlap}
        return {"kind": "enwik8", **settings, "sizes": list(corpus.sizes), "sha256": corpus.sha256}

    def encode(self, text: str) -> np.ndarray:
        """int32 [t] ids of a text's UTF-8 bytes."""
        return byte_ids(np.frombuffer(text.encode(), np.uint8))

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids [t]; bytes that are no text become U+FFFD."""
        return bytes_of(ids).decode(errors="replace")

    def _stride(self, split: str) -> int:
        return self.length // self.overlap if split == "train" else self.length

    def _data(self, split: str) -> np.ndarray:
        check_split(split)
        return self._corpus().parts[SPLITS.index(split)]

    def _corpus(self) -> Corpus:
        if self.corpus is None:
            raise DataError(f"enwik8: no path to the data was given; set enwik8's `path`. {ORIGIN}")
        return self.corpus


def enwik8(path: str | None = None, length: int = 65536, overlap: int = 1, sample: bool = False) -> Task:
    """The enwik8 task, with the data at `path` read and checked here and now.

    path     see `tasks.bytefiles.read_parts`: file, zip, directory or TFDS directory. None gives a task that knows its
             shapes but has no data: enough to build a model, and its feeds and fingerprint say what is missing.
    length   bytes in a window
    overlap  how many training windows hold a byte; it divides length
    sample   accept other bytes than enwik8's, split 90/5/5 unless they come in parts. The task's name then says so.
    """
    length = check_integer("enwik8: length", length, least=2)
    overlap = check_integer("enwik8: overlap", overlap, least=1)
    if length % overlap:
        raise DataError(f"enwik8: overlap must divide length, got {overlap} and {length}")
    corpus = None if path is None else _corpus(path, sample)
    if corpus and corpus.sizes[0] < length:
        raise DataError(
            f"enwik8: {path} is too short: its training part has {corpus.sizes[0]:,} bytes, one window takes {length:,}"
        )
    name = "enwik8_64k" if length == 65536 else f"enwik8_{length}"
    name += f".overlap{overlap}" * (overlap > 1)
    if corpus and not corpus.genuine:
        name += f".sample_{corpus.label}"
    return Task(name, length, BYTE_IDS, (BITS_PER_BYTE, ACCURACY), Windows(length, overlap, corpus))


def _corpus(path: str, sample: bool) -> Corpus:
    parts = read_parts(path, "enwik8")
    if len(parts) == 1:
        (data,) = parts
        held_out = len(data) // 20  # 5 % each
        if not held_out:
            raise DataError(
                f"enwik8: {path} is too short to be split 90/5/5: {len(data)} bytes, at least 20 are needed"
            )
        parts = (data[: -2 * held_out], data[-2 * held_out : -held_out], data[-held_out:])
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.data)
    corpus = Corpus(parts, tuple(map(len, parts)), digest.hexdigest())
    if sample or corpus.genuine:
        return corpus
    total = sum(corpus.sizes)
    if total != SIZE:
        what = "cut short" if total < SIZE else "not enwik8 alone"
        found = f"has {total:,} bytes where enwik8 has {SIZE:,}: it is {what}"
    elif corpus.sha256 != SHA256:
        found = f"has SHA-256 {corpus.sha256[:16]}..., enwik8 has {SHA256[:16]}...: it is another file or damaged"
    else:
        found = f"is split {corpus.sizes} where 90/5/5 million bytes are customary"
    raise NotPublished(f"enwik8: {path} {found}")
