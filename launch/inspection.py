"""What `repro inspect` finds out about one document, as arrays; `launch.inspect_page` makes a page of them.

Two ways of counting meet here. A model counts positions of its inputs: the query at a position predicts one token of
the document and has read the one before it. A page counts tokens: what is said of a token is said of the query that
predicts it, and a retrieved pair stands for the token that had just been read where it was computed.
"""

import dataclasses
from typing import Any

import numpy as np

DETAILS = 2_000_000  # retrieved tokens that are kept for a page, 8 bytes each there; 30,000 tokens of 16 heads
BEGINNING, NOTHING = -1, -2  # what was retrieved if it is no token: the start of the document; nothing


@dataclasses.dataclass(frozen=True)
class Document:
    """One document of a task: its ids [t], the text of each, and how they become segments."""

    task: Any
    split: str
    number: int
    name: str
    ids: np.ndarray
    texts: list[str]

    @classmethod
    def of(cls, task, split, number, most=None):
        """Document `number` of a split, or its first `most` tokens. Raises ConfigError if there is none."""
        from launch.errors import ConfigError

        size = len(task.source.lengths(split))
        if number >= size:
            raise ConfigError(f"--document: there is no {number}; the {split} split has {size}, from 0")
        length = int(task.source.lengths(split)[number])
        ids = task.source.tokens(split, number, 0, min(length, most or length))
        names = getattr(task.source, "names", None)
        name = names(split)[number] if callable(names) else f"document {number}"
        return cls(task, split, number, name, ids, pieces(task.source, ids))

    @property
    def lag(self):
        """Tokens by which inputs are behind the document: 1, or 0 if segments' first tokens are not predicted."""
        return int(self.task.predict_first)

    def segments(self):
        """Batches of one row, as training reads the document."""
        from tasks.documents import segment

        for start in range(0, len(self.ids), self.task.length):
            tokens, before = self.ids[start : start + self.task.length], self.ids[max(0, start - 1) : start]
            part = segment(tokens, np.ones(len(tokens), np.float32), before, self.task.predict_first)
            batch = self.task.specimen(1)
            for name, values in part.items():
                batch[name][0, : len(values)] = values
            batch["document_start"][0] = start == 0
            yield batch

    def by_token(self, x, missing):
        """Rows by position -> rows by the token that the position predicts."""
        return x if self.lag else np.concatenate([np.full_like(x[:1], missing), x[:-1]])


def pieces(source, ids):
    """The text of every id, together the whole text. Where several ids make one character, the first gets all of it."""
    known = {int(one): source.text(np.array([one], np.int32)) for one in np.unique(ids)}
    texts = [known[one] for one in map(int, ids)]
    at = 0
    while at < len(texts):
        count = 1
        if "\ufffd" in texts[at]:
            together = ((n, source.text(ids[at : at + n])) for n in range(2, 5))
            count, whole = next(((n, text) for n, text in together if "\ufffd" not in text), (1, texts[at]))
            texts[at : at + count] = [whole, *[""] * (count - 1)]
        at += count
    return texts


@dataclasses.dataclass(frozen=True)
class Found:
    """Of two models that differ in the size of their memory, and of what the second one retrieved.

    t tokens, m memory layers, h heads, n tokens with details, the last n of the document.
    """

    sizes: tuple  # of the memories
    layers: tuple  # the memory layers, counted from 1
    nats: np.ndarray  # [2,t] float32 of each token; nan where it is not predicted
    place: np.ndarray  # [n,m,h,shown] int32, tokens retrieved with most attention; BEGINNING, NOTHING
    weight: np.ndarray  # [n,m,h,shown] float32, attention to them in the memory's own softmax
    share: np.ndarray  # [m,h] of the memory in the output, mean over the document
    age: np.ndarray  # [m,h] tokens since what was retrieved, weighted by attention, mean over queries that found any
    recall: np.ndarray  # [m,h] share of the k best that was found, likewise
    definitions: Any  # `Definitions`, None if the text is not Isabelle's

    @property
    def gain(self):
        """Nats that the second memory gained over the first, [t]; 0 for tokens that are not predicted."""
        return np.nan_to_num(self.nats[0] - self.nats[1])


def examine(document, small, large, shown=4, advance=lambda: None):
    """`Found` of a document under two (model, parameters) pairs that differ in their memory."""
    nats = [_nats(document, _walk(document, *small, advance))]
    definitions = (
        Definitions.of(document, large[0]) if getattr(document.task.source, "kind", "") == "isabelle" else None
    )
    keep = -(-DETAILS // (len(large[0].memory_layers) * large[0].heads * shown))
    parts, places, weights, sums = [], [], [], 0
    for first, counted, part in _walk(document, *large, advance):
        parts.append((first, counted, part._replace(source=None, weight=None)))
        position = first + np.arange(len(part.nats))[:, None]
        filled = part.source >= 0
        age = np.sum(part.weight * np.where(filled, position - part.source, 0), axis=-1)
        found = filled.any(-1)
        sums = sums + np.array([part.share.sum(-1), age.sum(-1), (part.recall * found).sum(-1), found.sum(-1)])
        source = np.where(filled, part.source - document.lag, NOTHING)
        if definitions:
            definitions.count(first, source, part.weight)
        place, weight = part._replace(source=source).strongest(shown)
        places.append(np.moveaxis(place, 2, 0).astype(np.int32))
        weights.append(np.moveaxis(weight, 2, 0).astype(np.float32))
        if sum(map(len, places[1:])) > keep:  # the rest is enough
            del places[0], weights[0]
    nats.append(_nats(document, parts))
    share, age, recall, found = sums
    place, weight = (np.concatenate(x) for x in (places, weights))
    if len(place) == len(document.ids):
        place, weight = document.by_token(place, NOTHING), document.by_token(weight, 0)
    elif not document.lag:
        place, weight = place[:-1], weight[:-1]
    return Found(
        sizes=(small[0].memory, large[0].memory),
        layers=large[0].memory_layers,
        nats=np.array(nats),
        place=place[-keep:],
        weight=weight[-keep:],
        share=share / len(document.ids),
        age=age / np.maximum(found, 1),
        recall=recall / np.maximum(found, 1),
        definitions=definitions,
    )


def _walk(document, model, params, advance):
    """(first position, which positions count [l], `inspect.Read`) of every segment."""
    first, batches = 0, list(document.segments())
    for batch, part in zip(batches, model.look_inside(params, batches), strict=True):
        yield first, batch["decoder_loss_weights"][0, : len(part.nats)] > 0, part
        first += len(part.nats)
        advance()


def _nats(document, parts):
    """Nats of every token, [t]; nan where it is not predicted."""
    return document.by_token(
        np.concatenate([np.where(counted, part.nats, np.nan) for _, counted, part in parts]), np.nan
    )


# ---- names and their statements --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Definitions:
    """How often, where an Isabelle name is predicted, its statement is retrieved: for every token of a name that was
    stated before, whether the statement is among the k tokens that a head retrieved, and whether it has most attention.

    Only tokens count for which some of the statement is in memory; `out` are the others. Chances are those of entries
    drawn at random from the memory of the same moment.
    """

    mentions: list  # of (name, tokens (from, to), statement (from, to))
    memory: int
    lag: int
    segment: int
    tokens: int = 0
    out: int = 0
    any_head: float = 0.0  # tokens where some head retrieved it
    any_chance: float = 0.0
    heads: Any = 0.0  # [m,h], of each head
    chance: float = 0.0
    strongest: Any = 0.0  # [m,h], where it has most of the head's attention
    strongest_chance: float = 0.0
    cases: dict = dataclasses.field(default_factory=dict)  # mention -> most heads that retrieved it, at any token

    @classmethod
    def of(cls, document, model):
        """Nothing counted yet. The document's text is read for statements."""
        from tasks.statements import mentions

        ends = np.cumsum([len(text) for text in document.texts])
        begins = ends - [len(text) for text in document.texts]

        def tokens(start, stop):
            return int(np.searchsorted(ends, start, "right")), int(np.searchsorted(begins, stop, "left"))

        found = [
            (one.statement.name, tokens(one.start, one.stop), tokens(one.statement.start, one.statement.stop))
            for one in mentions("".join(document.texts))
        ]
        return cls(found, model.memory, document.lag, document.task.length)

    def count(self, first, source, weight):
        """Adds a segment that begins at position `first`: source [m,h,l,k] in tokens, weight [m,h,l,k]."""
        from tasks.statements import by_chance

        m, h, length, k = source.shape
        ahead = 1 - self.lag  # from a position to the token that it predicts
        oldest = max(0, first - self.memory)
        for number, (_, (begin, end), (low, high)) in enumerate(self.mentions):
            inside = max(0, min(high, first - self.lag) - max(low, oldest - self.lag))
            for token in range(max(begin, first + ahead), min(end, first + ahead + length)):
                if not inside:
                    self.out += 1
                    continue
                row = token - ahead - first
                hit = (source[:, :, row] >= low) & (source[:, :, row] < high)
                heads = hit.any(-1)
                best = np.take_along_axis(hit, weight[:, :, row].argmax(-1)[..., None], axis=-1)[..., 0]
                chance = by_chance(first - oldest, inside, k)
                self.tokens += 1
                self.any_head += heads.any()
                self.any_chance += 1 - (1 - chance) ** (m * h)
                self.heads = self.heads + heads
                self.chance += chance
                self.strongest = self.strongest + best
                self.strongest_chance += inside / (first - oldest)
                self.cases[number] = max(self.cases.get(number, 0), int(heads.sum()))
