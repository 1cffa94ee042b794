"""Slots: which document every row of a batch reads, and how far it has come (Memorizing Transformers, section 4.2).

A slot is one row of the batch. It reads one document segment by segment, so that the model's caches and memory of that
row always hold what came before in the same document. When a document ends, its slot takes the next one of an order
that all slots share; of slots that end together the first takes first.

All slots move in step, so everything here is a pure function of documents' lengths, and every host of a run knows what
the slots of all others read without asking them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.task import check_integer

FREE = -1


@dataclass(frozen=True)
class Slots:
    """Where the b slots stand between two batches.

    taken     how many documents the shared order has given out
    waiting   documents to be taken before the shared order goes on, the first one first
    document  int64 [b]: the document that each slot is in the middle of, FREE if there is none
    offset    int64 [b]: how many of its tokens were given out
    """

    taken: int
    waiting: tuple[int, ...]
    document: np.ndarray
    offset: np.ndarray

    @classmethod
    def free(cls, count: int, taken: int = 0, waiting: tuple[int, ...] = ()) -> "Slots":
        """`count` slots without a document."""
        return cls(taken, waiting, np.full(count, FREE, np.int64), np.zeros(count, np.int64))

    def seated(self, order: Callable[[int], int | None]) -> "Slots":
        """After each free slot, the first one first, has taken a document.

        order(n) is the document at place n of the shared order, None from its end on: then slots stay free.
        """
        waiting, taken, document = list(self.waiting), self.taken, self.document.copy()
        for slot in np.flatnonzero(document == FREE):
            if waiting:
                document[slot] = waiting.pop(0)
                continue
            following = order(taken)
            if following is None:
                break
            document[slot], taken = following, taken + 1
        return Slots(taken, tuple(waiting), document, self.offset)

    def moved(self, lengths: np.ndarray, segment: int) -> "Slots":
        """After each slot has given out up to `segment` tokens; `lengths` int64 [documents], in tokens."""
        offset = self.offset + segment
        reading = (self.document != FREE) & (offset < lengths[self.document])
        return Slots(self.taken, self.waiting, np.where(reading, self.document, FREE), np.where(reading, offset, 0))

    def resized(self, count: int) -> "Slots":
        """`count` free slots that go on where these stand: unfinished documents wait to be read from their start."""
        unfinished = self.document[self.document != FREE].tolist()
        return Slots.free(count, self.taken, (*unfinished, *self.waiting))

    def state(self) -> dict[str, Any]:
        """Plain JSON values: taken, waiting, and slots as pairs (document, offset)."""
        pairs = [list(pair) for pair in zip(self.document.tolist(), self.offset.tolist(), strict=True)]
        return {"taken": self.taken, "waiting": list(self.waiting), "slots": pairs}

    @classmethod
    def of_state(cls, state: dict[str, Any], lengths: np.ndarray) -> "Slots":
        """The slots of a `state`. ValueError or TypeError if it does not fit documents of these lengths."""
        taken = check_integer("taken", state["taken"], least=0, below=2**63)
        waiting = tuple(check_integer("document", one, least=0, below=len(lengths)) for one in state["waiting"])
        pairs = state["slots"]
        for document, offset in pairs:
            check_integer("document", document, least=FREE, below=len(lengths))
            check_integer("offset", offset, least=0, below=1 if document == FREE else int(lengths[document]))
        document, offset = np.array(pairs, np.int64).reshape(-1, 2).T
        return cls(taken, waiting, document, offset)
