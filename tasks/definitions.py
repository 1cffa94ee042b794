"""Definitions and questions: what only a memory can answer, and whether it does.

A document is a sequence of pairs. `LET n=v` defines a name, each name once; `n v` asks for it, and the value is the
answer. Only answers count. A quarter of the pairs define. Half of the questions are about a name defined at most `near`
tokens ago, half about one that was last seen `far` tokens ago or earlier; only these count in validation and test. A
model that sees fewer than `far` tokens can but guess, and is right once in `values` times.

The nearer questions are there for training. What is stored has no gradient, so keys learn to be found from questions
whose definition the window still holds. A definition is one token, so that the key which a question looks for is the
token that answers it: with a token for the name and one for the value, a layer would first have to tell every token
what stands before it, and training stays for thousands of steps where neither half of that is of use without the other.
"""

import functools
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from tasks import randomness
from tasks.documents import DocumentTask
from tasks.metrics import ACCURACY, NATS_PER_TOKEN
from tasks.task import DataError, check_integer, check_split

LET, FIRST_NAME = 1, 2


@dataclass(frozen=True)
class Definitions:
    """The `tasks.documents.Documents` of generated documents; see `definitions` for the settings."""

    pairs: int
    names: int
    values: int
    near: int
    far: int
    documents: int
    held_out: int

    def size(self, split: str) -> int:
        check_split(split)
        return self.documents if split == "train" else self.held_out

    def lengths(self, split: str) -> np.ndarray:
        return np.full(self.size(split), 2 * self.pairs, np.int64)

    def tokens(self, split: str, document: int, start: int, stop: int) -> np.ndarray:
        return _document(self, split, document)[0][start:stop]

    def weights(self, split: str, document: int, start: int, stop: int) -> np.ndarray:
        return _document(self, split, document)[1][start:stop]

    def example(self, split: str, index: int, seed: int | None) -> dict[str, np.ndarray]:
        """A whole document: 'targets' int32 [t], 'weights' float32 [t]."""
        targets, weights = _document(self, split, randomness.place(self.size(split), index, seed))
        return {"targets": targets, "weights": weights}

    def text(self, ids: np.ndarray) -> str:
        return " ".join(self._word(int(one)) for one in ids)

    def _word(self, token: int) -> str:
        value = FIRST_NAME + self.names
        definition = value + self.values
        if token < FIRST_NAME:
            return "-" if token == 0 else "let"
        if token < value:
            return f"n{token - FIRST_NAME}"
        if token < definition:
            return f"v{token - value}"
        return "n{}=v{}".format(*divmod(token - definition, self.values))

    def texts(self, split: str) -> Iterable[str]:
        return (self.text(self.tokens(split, number, 0, 2 * self.pairs)) for number in range(self.size(split)))

    def bytes_per_token(self, split: str) -> float:
        raise DataError(f"definitions: the tokens of {split} are no text")

    def identity(self) -> dict[str, object]:
        return {"kind": "definitions", **asdict(self)}


def definitions(
    length: int = 64,
    pairs: int = 288,
    names: int = 32,
    values: int = 16,
    near: int = 24,
    far: int = 192,
    documents: int = 100_000,
    held_out: int = 64,
) -> DocumentTask:
    """Definitions and questions about them.

    length     tokens in a segment
    pairs      definitions and questions of a document
    names      how many there are; a document defines each once at most
    values     how many there are; 1 / values is chance
    near       tokens to the definition, at most, in the questions that a window can answer
    far        tokens between an answer that counts in validation and test and where its name was last seen, at least:
               more than the window and the cache of the models that are to fail
    documents  of the training split, far more than a run reads; held_out: of validation and of test
    """
    length = check_integer("definitions: length", length, least=1)
    settings = {"pairs": pairs, "names": names, "values": values, "near": near, "far": far}
    for name, least in (("pairs", 4), ("names", 2), ("values", 2), ("near", 2), ("far", 2)):
        check_integer(f"definitions: {name}", settings[name], least=least)
    for name, value in (("documents", documents), ("held_out", held_out)):
        check_integer(f"definitions: {name}", value, least=1)
    if 2 * pairs < far + 8:
        raise DataError(
            f"definitions: documents of {pairs} pairs have {2 * pairs} tokens, so hardly a question is {far} "
            "tokens from its definition; raise pairs, or lower far"
        )
    source = Definitions(**settings, documents=documents, held_out=held_out)
    name = f"definitions.length{length}" + "".join(f".{key}{value}" for key, value in settings.items())
    size = FIRST_NAME + names + values + names * values
    return DocumentTask(name, length, size, (ACCURACY, NATS_PER_TOKEN), source)


@functools.lru_cache(maxsize=512)
def _document(source: Definitions, split: str, document: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens int32 [t], weights float32 [t]) of one document, a pure function of its number."""
    dice = iter(randomness.draws(0, split, document, 4 * source.pairs + source.names))
    below = lambda count: int(next(dice) % np.uint64(count))  # noqa: E731
    unused = list(range(source.names))
    value: dict[int, int] = {}
    defined: dict[int, int] = {}  # name -> where
    seen: dict[int, int] = {}  # name -> where last, oldest first
    tokens, weights = [], np.zeros(2 * source.pairs, np.float32)
    for place in range(0, 2 * source.pairs, 2):
        old = [name for name, last in seen.items() if place - last >= source.far]
        recent = [name for name, where in defined.items() if place - where <= source.near]
        pools = [pool for pool in (recent, old) if pool]
        if unused and (not pools or below(4) == 0):
            name = unused.pop(below(len(unused)))
            value[name], defined[name] = below(source.values), place
        else:
            some = pools[below(len(pools))] if pools else list(seen)
            name = some[below(len(some))]
            weights[place + 1] = split == "train" or some is old
        seen.pop(name, None)
        seen[name] = place
        answer = FIRST_NAME + source.names + value[name]
        definition = FIRST_NAME + source.names + source.values + name * source.values + value[name]
        tokens += [LET, definition] if defined[name] == place else [FIRST_NAME + name, answer]
    return np.array(tokens, np.int32), weights
