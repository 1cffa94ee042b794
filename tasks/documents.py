"""Documents in order: each row of the batch reads one document after another (Memorizing Transformers, section 4.2).

A batch has the features of `tasks.feeds`, and one more:

    document_start  int32 [b]  1 where this segment is the first one of its document: what the model remembers of that
                               row belongs to another document and has to be forgotten before it reads

A segment is `length` tokens; a document's last one is padded (weight 0, segment id 0). The first token of a document is
predicted from input 0, the first token of any later segment from the last token of the segment before, so every token
is predicted once. The authors' code predicts no segment's first token: the inputs are the segment's own tokens, the
targets the same shifted left by one, and the last position does not count. `predict_first` False gives that.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from tasks import randomness
from tasks.feeds import FEATURES, Batch, Feed, check_ids
from tasks.logs import say, say_once
from tasks.slots import FREE, Slots
from tasks.task import DataError, Source, Task, check_integer, check_split


class Documents(Source, Protocol):
    """A `Source` whose examples are whole documents of any length, and which reads pieces of them."""

    def lengths(self, split: str) -> np.ndarray:
        """int64 [documents]: tokens of each document in the stored order, at least 1."""
        ...

    def tokens(self, split: str, document: int, start: int, stop: int) -> np.ndarray:
        """int32 [t]: the tokens of a document from `start` to before `stop`, fewer if it ends earlier."""
        ...

    def weights(self, split: str, document: int, start: int, stop: int) -> np.ndarray:
        """float32 [t]: how much each of these tokens counts."""
        ...

    def texts(self, split: str) -> Iterable[str]:
        """The split's texts, which can be gone through again and again."""
        ...

    def bytes_per_token(self, split: str) -> float:
        """Bytes of the split's text over its tokens."""
        ...

    def text(self, ids: np.ndarray) -> str:
        """What token ids [t] stand for, for people to read."""
        ...


@dataclass(frozen=True)
class DocumentTask(Task):
    """A task on documents in order.

    predict_first  whether the first token of a segment is predicted (see the file's beginning)
    """

    source: Documents
    predict_first: bool = True

    def feed(
        self,
        split: str,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        pipeline: Literal["auto", "seqio", "numpy"] = "auto",
    ) -> "DocumentFeed":
        """Batches of a split. The rows of reader i are rows [i batch_size, (i + 1) batch_size) of the whole batch.

        The pipeline is NumPy's: seqio's has no slots whose place could be saved. `register` gives the same segments.
        """
        if pipeline not in ("auto", "numpy"):
            raise DataError(
                f"{self.name}: documents in order come from pipeline 'numpy' (or 'auto'), got {pipeline!r}; "
                "the registered seqio Task gives their segments one document after another"
            )
        return DocumentFeed(self, split, batch_size, seed, shard)

    def specimen(self, batch_size: int = 1) -> Batch:
        """Zeros with the names, shapes and types of a batch."""
        batch: Batch = {name: np.zeros((batch_size, self.length), kind) for name, kind in FEATURES.items()}
        return {**batch, "document_start": np.zeros(batch_size, np.int32)}

    def totals(self, split: str, sums: Mapping[str, float]) -> Mapping[str, float]:
        """The sums and 'bytes', those of text behind the counted tokens: exact where a split was counted whole."""
        if not any(metric.per == "bytes" for metric in self.metrics):
            return sums
        return {**sums, "bytes": sums["weights"] * self.source.bytes_per_token(split)}

    def texts(self, split: str) -> Iterable[str]:
        """The texts of a split: what a vocabulary is made of."""
        return self.source.texts(split)

    def row(self, split: str, document: int, start: int) -> Batch:
        """The features [l] of the segment of a document that begins at token `start`; 'document_start' has shape []."""
        batch = {name: values[0] for name, values in self.specimen().items()}
        before = max(start - 1, 0)
        tokens = self.source.tokens(split, document, before, start + self.length)
        weights = self.source.weights(split, document, start, start + self.length)
        part = segment(tokens[start - before :], weights, tokens[: start - before], self.predict_first)
        for name, values in part.items():
            batch[name][: len(values)] = values
        return {**batch, "document_start": np.int32(start == 0)}

    def register(self):
        """The seqio Task of this name: its examples are segments, one document after another."""
        from tasks.segments import register_documents

        return register_documents(self)


class DocumentFeed(Feed):
    """Iterator over batches, all of the same shape, each slot reading its documents in order (`tasks.slots`).

    'train' never ends; each pass over the documents has its own order, and a slot that ends a document goes on with the
    next one whatever pass it belongs to. 'validation' and 'test' give every token once, whatever the batch size:
    when no document is left, the rows of free slots are zeros (weight 0, segment 0, document_start 0).

    The state is where all slots of all readers stand, so it is the same for every reader, and a restored feed gives the
    very batches that would have followed, also on another number of readers that share the same whole batch.
    """

    task: DocumentTask

    def __init__(self, task: DocumentTask, split: str, batch_size: int, seed: int, shard: tuple[int, int]):
        check_split(split)
        batch_size = check_integer("batch_size", batch_size, least=1)
        seed = check_integer("seed", seed, least=0, below=2**63)
        reader, readers = shard
        readers = check_integer("number of shards", readers, least=1)
        reader = check_integer("shard", reader, least=0, below=readers)
        self.task, self.split, self.batch_size, self.seed = task, split, batch_size, seed
        self._rows = slice(reader * batch_size, (reader + 1) * batch_size)
        self._lengths = task.source.lengths(split)
        if not len(self._lengths) or int(self._lengths.min()) < 1:
            raise DataError(f"{task.name}: the {split} split has no document, or one without tokens")
        self._slots = Slots.free(batch_size * readers)
        rows, documents = batch_size * readers, len(self._lengths)
        if split != "train" and rows > documents:
            count = f"{documents} document{'s' if documents > 1 else ''}"
            say_once(f"{task.name}: {split} has {count} for {rows} rows; the others stay empty")

    def __next__(self) -> Batch:
        slots = self._slots.seated(self._order)
        if np.all(slots.document == FREE):
            raise StopIteration
        batch = self._read(slots.document[self._rows], slots.offset[self._rows])
        check_ids(batch, self.task, self.split, slots.taken)
        self._slots = slots.moved(self._lengths, self.task.length)
        return batch

    def _order(self, place: int) -> int | None:
        size = len(self._lengths)
        if self.split == "train":
            return randomness.place(size, place, self.seed)
        return place if place < size else None

    def _read(self, document: np.ndarray, offset: np.ndarray) -> Batch:
        """The batch of one segment for each document [b] from its offset [b] on."""
        batch = self.task.specimen(len(document))
        for row in np.flatnonzero(document != FREE):
            for name, values in self.task.row(self.split, int(document[row]), int(offset[row])).items():
                batch[name][row] = values
        return batch

    def state(self) -> str:
        """Where every slot stands, as JSON: the pass and place in the order, and (document, offset) of each slot."""
        state = self._slots.state()
        epoch, place = divmod(state.pop("taken"), len(self._lengths))
        return json.dumps({**self._who(), "epoch": epoch, "next": place, **state})

    def restore(self, state: str) -> None:
        """Go on exactly where a feed of the same task, split and seed stood. DataError for any other state.

        With another number of slots (readers x batch_size) no row can go on with what its model state remembers: then
        all slots begin anew, with the unfinished documents first, and one line says so.
        """
        try:
            saved = dict(json.loads(state))
            taken = saved.pop("epoch") * len(self._lengths) + saved.pop("next")
            parts = {name: saved.pop(name) for name in ("waiting", "slots")}
            slots = Slots.of_state({"taken": taken, **parts}, self._lengths)
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"not the state of a feed of documents: {state!r:.200} ({error})") from None
        if saved != self._who():
            raise DataError(f"the state belongs to another feed: it was saved by {saved}, this is {self._who()}")
        count = len(self._slots.document)
        if len(slots.document) != count:
            unfinished = int(np.sum(slots.document != FREE))
            say(
                f"{self.task.name}: the saved batch has {len(slots.document)} rows, this one {count}: rows start at "
                f"document borders, {unfinished} unfinished documents are read again from their first token"
            )
            slots = slots.resized(count)
        self._slots = slots


def segment(tokens: np.ndarray, weights: np.ndarray, before: np.ndarray, predict_first: bool) -> Batch:
    """The features [t] of one segment: its tokens and their weights [t], and the one token before it, [1], or none."""
    if predict_first:
        targets, inputs = tokens, np.append(before if len(before) else [0], tokens[:-1])
    else:
        targets, inputs, weights = np.append(tokens[1:], 0), tokens, np.append(weights[1:], 0)
    return {
        "decoder_target_tokens": targets,
        "decoder_input_tokens": inputs,
        "decoder_loss_weights": weights,
        "decoder_segment_ids": np.ones_like(tokens),
    }
