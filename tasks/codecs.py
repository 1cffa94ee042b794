"""From text to token ids and back: bytes, or a SentencePiece model from a file."""

from pathlib import Path
from typing import Protocol

import numpy as np

from tasks.subwords import UNKNOWN, load
from tasks.task import DataError, check_integer
from tasks.vocabularies import BYTE_IDS, BYTE_OFFSET, byte_ids, bytes_of

UNMADE = (
    "no vocabulary was given; set `vocabulary` to 'bytes' (258 ids), or to a SentencePiece model, which "
    "`repro data vocab` makes of the training texts"
)


class Codec(Protocol):
    """A vocabulary. Every id is below `size`; `name` is short, and distinct for distinct vocabularies."""

    name: str
    size: int
    per_byte: bool  # whether a token is a byte
    unknown: int | None  # the id of whatever the vocabulary cannot write

    def encode(self, text: str) -> np.ndarray:
        """int32 [t] ids of a text."""
        ...

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids [t]; bytes that are no text become U+FFFD."""
        ...

    def pieces(self, ids: np.ndarray) -> list[str]:
        """How each of the ids [t] is written, for people to read."""
        ...


class Bytes:
    """UTF-8 bytes, byte b as id b + 2 (`tasks.vocabularies`). Nothing is lost."""

    name, size, per_byte = "bytes", BYTE_IDS, True
    unknown: int | None = None

    def encode(self, text: str) -> np.ndarray:
        return byte_ids(np.frombuffer(text.encode(), np.uint8))

    def decode(self, ids: np.ndarray) -> str:
        return bytes_of(ids).decode(errors="replace")

    def pieces(self, ids: np.ndarray) -> list[str]:
        bytes_ = [int(one) - BYTE_OFFSET for one in ids]
        return [chr(one) if 32 <= one < 127 else f"<0x{one:02X}>" if one >= 0 else "<pad>" for one in bytes_]


class Pieces:
    """A SentencePiece model (`tasks.subwords`). What its normaliser drops, often line ends, is lost to the model."""

    per_byte = False
    unknown: int | None = UNKNOWN

    def __init__(self, path: str):
        self._words = load(path)
        self.size = self._words.size
        self.name = f"sp{self.size}_{self._words.sha256[:8]}"

    def encode(self, text: str) -> np.ndarray:
        (ids,) = self._words.encode([text])
        return np.array(ids, np.int32)

    def decode(self, ids: np.ndarray) -> str:
        return self._words.decode(ids)

    def pieces(self, ids: np.ndarray) -> list[str]:
        return self._words.pieces(ids)


class Unmade:
    """A vocabulary of which only the number of ids is known: enough to build a model, not to read texts."""

    per_byte = False
    unknown: int | None = None

    def __init__(self, size: int):
        self.size, self.name = size, f"ids{size}"

    def encode(self, text: str) -> np.ndarray:
        raise DataError(UNMADE)

    def decode(self, ids: np.ndarray) -> str:
        return " ".join(self.pieces(ids))

    def pieces(self, ids: np.ndarray) -> list[str]:
        return [str(int(one)) for one in ids]


def codec(vocabulary: str | None, ids: int | None = None) -> Codec:
    """'bytes', or the SentencePiece model at a path; None is one of `ids` ids that is not made yet.

    ids: if given, the size that is expected, which a model's table of embeddings has to have.
    """
    if ids is not None:
        ids = check_integer("ids", ids, least=2)
    if vocabulary is None:
        if ids is None:
            raise DataError(f"{UNMADE}. `ids` alone gives a task without texts")
        return Unmade(ids)
    if vocabulary != "bytes" and not (isinstance(vocabulary, str) and Path(vocabulary).expanduser().is_file()):
        raise DataError(f"no vocabulary at {vocabulary!r}: it must be 'bytes' or the file of a SentencePiece model")
    found: Codec = Bytes() if vocabulary == "bytes" else Pieces(vocabulary)
    if ids not in (None, found.size):
        raise DataError(
            f"vocabulary {vocabulary} has {found.size} ids, `ids` says {ids}; set ids={found.size} "
            "(VOCABULARY_SIZE in gin files)"
        )
    return found
