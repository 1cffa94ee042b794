"""The duplication task (Reformer, section 2, "Analysis on a synthetic task", and Table 2): copy a sequence.

An example is `0 w 0 w`: w holds length/2 - 1 symbols drawn uniformly from 1 to `symbols`, both included (the official
generator never draws the last one), and only the second w is scored. To predict it the model must look back
exactly length/2 positions, which is what LSH attention has to find.
"""

from dataclasses import asdict, dataclass

import numpy as np

from tasks import randomness
from tasks.metrics import ACCURACY, NATS_PER_TOKEN
from tasks.task import DataError, Task, check_integer, check_split


@dataclass(frozen=True)
class Duplication:
    """Source of examples: endless for training, `examples` fixed ones each for validation and test."""

    length: int
    symbols: int
    examples: int

    def size(self, split: str) -> int | None:
        check_split(split)
        return None if split == "train" else self.examples

    def example(self, split: str, index: int, seed: int | None) -> dict[str, np.ndarray]:
        """'targets' int32 [length], 'weights' float32 [length], 1 on the length/2 - 1 symbols of the second w."""
        if split == "train":
            key = 0 if seed is None else seed
        else:  # the fixed sets do not depend on the seed; it only orders them
            key, index = 0, randomness.place(self.examples, index, seed)
        half = self.length // 2
        bits = randomness.draws(key, split, index, half - 1)
        targets = np.zeros(self.length, np.int32)
        # The remainder of a 64-bit number favours no symbol by more than symbols / 2**64.
        targets[1:half] = targets[half + 1 :] = 1 + bits % np.uint64(self.symbols)
        weights = np.zeros(self.length, np.float32)
        weights[half + 1 :] = 1
        return {"targets": targets, "weights": weights}

    def identity(self) -> dict[str, object]:
        return {"kind": "duplication", **asdict(self)}


def duplication(length: int = 1024, symbols: int = 127, examples: int = 512) -> Task:
    """The duplication task; the defaults are the paper's (length 1024, symbols 1 to 127).

    length    even, at least 4: two zeros and twice length/2 - 1 symbols
    symbols   number of symbols; the vocabulary is symbols + 1, since 0 separates
    examples  number of fixed examples in each of validation and test
    """
    length = check_integer("duplication: length", length, least=4)
    if length % 2:
        raise DataError(f"duplication: length must be even (`0 w 0 w` has two equal halves), got {length}")
    symbols = check_integer("duplication: symbols", symbols, least=1)
    examples = check_integer("duplication: examples", examples, least=1)
    settings = {"length": (length, 1024), "symbols": (symbols, 127), "examples": (examples, 512)}
    name = ".".join(["duplication", *(f"{key}{value}" for key, (value, usual) in settings.items() if value != usual)])
    return Task(name, length, symbols + 1, (ACCURACY, NATS_PER_TOKEN), Duplication(length, symbols, examples))
