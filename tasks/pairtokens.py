"""Tokenised sentence pairs, in a few flat arrays; those of a large text are kept on disk."""

import functools
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.bitexts import Bitext
from tasks.logs import say
from tasks.subwords import EOS, Subwords
from tasks.task import DataError
from tasks.tokenised import cache_folder

TOGETHER = 20_000  # pairs tokenised at a time
KEPT_FROM = 200_000  # pairs whose tokens are kept; fewer are made again in seconds
FORMAT = 1  # raise it whenever the same texts begin to give other tokens
ARRAYS = ("source", "target", "source_bounds", "target_bounds", "rows")


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokenised pairs that are used, one after the other, each sentence ended by EOS.

    ids     (source, target): uint16 or int32 [tokens]
    bounds  (source, target): int64 [pairs + 1], where each begins and the last one ends
    rows    int64 [pairs]: the pair's number in the text
    """

    ids: tuple[np.ndarray, np.ndarray]
    bounds: tuple[np.ndarray, np.ndarray]
    rows: np.ndarray

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 [pairs]: tokens of the longer side."""
        return np.maximum(*map(np.diff, self.bounds))

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        source, target = (
            ids[bounds[index] : bounds[index + 1]] for ids, bounds in zip(self.ids, self.bounds, strict=True)
        )
        return source, target


@functools.lru_cache(maxsize=4)
def tokenised(bitext: Bitext, words: Subwords, longest: int, strict: bool, name: str) -> Tokens:
    """The pairs of which no side has more than `longest` tokens; `strict` leaves out as well what training cannot use.

    What is left out is said and counted in the log. Of many pairs (KEPT_FROM) the tokens are kept on disk and mapped
    from then on: tokenising the whole of WMT14 takes minutes.
    """
    if len(bitext) < KEPT_FROM:
        tokens, dropped = tokenise(bitext, words, longest, strict)
    else:
        key = json.dumps([FORMAT, bitext.sha256, words.sha256, longest, strict])
        folder = cache_folder().parent / "pairs" / hashlib.sha256(key.encode()).hexdigest()[:32]
        if folder.is_dir():
            tokens, dropped = _map(folder)
        else:
            tokens, dropped = tokenise(bitext, words, longest, strict)
            _keep(folder, tokens, dropped)
    listed = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items() if count)
    if not len(tokens.rows):
        raise DataError(f"{name}: not one of {len(bitext):,} pairs can be used ({listed})")
    if listed:
        say(f"{name}: {sum(dropped.values()):,} of {len(bitext):,} pairs are left out: {listed}")
    return tokens


def tokenise(bitext: Bitext, words: Subwords, longest: int, strict: bool) -> tuple[Tokens, dict[str, int]]:
    """(tokens, reason -> number of pairs left out for it)."""
    kind = np.uint16 if words.size <= 1 << 16 else np.int32
    ids: tuple[list, list] = ([], [])
    sizes: tuple[list, list] = ([], [])
    rows: list[int] = []
    dropped = {"empty on one side": 0, "with a NUL character": 0, f"longer than {longest} tokens": 0}
    for numbers, pairs in _portions(bitext, strict, dropped):
        sides = [words.encode(side) for side in zip(*pairs, strict=True)]
        fits = [max(map(len, pair)) < longest for pair in zip(*sides, strict=True)]
        dropped[f"longer than {longest} tokens"] += fits.count(False)
        rows += itertools.compress(numbers, fits)
        for side, flat, counts in zip(sides, ids, sizes, strict=True):
            ended = [[*sentence, EOS] for sentence in itertools.compress(side, fits)]
            flat.append(np.fromiter(itertools.chain.from_iterable(ended), kind))
            counts += map(len, ended)
    source, target = (np.concatenate([np.zeros(0, kind), *flat]) for flat in ids)
    begins, ends = (np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]) for counts in sizes)
    return Tokens((source, target), (begins, ends), np.array(rows, np.int64)), dropped


def _portions(bitext: Bitext, strict: bool, dropped: dict[str, int]) -> Iterator[tuple[list[int], list]]:
    """(numbers, pairs) of up to TOGETHER pairs at a time; counts those that training cannot use."""
    numbers: list[int] = []
    pairs: list[tuple[str, str]] = []
    for number, pair in enumerate(bitext):
        if strict and not all(side.strip() for side in pair):
            dropped["empty on one side"] += 1
        elif strict and any("\0" in side for side in pair):
            dropped["with a NUL character"] += 1
        else:
            numbers.append(number)
            pairs.append(pair)
        if len(pairs) == TOGETHER:
            yield numbers, pairs
            numbers, pairs = [], []
    if pairs:
        yield numbers, pairs


def _keep(folder: Path, tokens: Tokens, dropped: dict[str, int]) -> None:
    """Writes the tokens into `folder`, whole or not at all. A full disk costs the next start minutes, and no run."""
    arrays = dict(zip(ARRAYS, (*tokens.ids, *tokens.bounds, tokens.rows), strict=True))
    draft = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}.draft-", dir=folder.parent))
        for name, array in arrays.items():
            np.save(draft / f"{name}.npy", array)
        (draft / "dropped.json").write_text(json.dumps(dropped))
        if not folder.is_dir():  # another process may have been faster, with the same tokens
            os.rename(draft, folder)
    except OSError as error:
        say(f"tokens cannot be kept in {folder.parent} ({error.strerror or error}); they will be made again next time")
    if draft:
        shutil.rmtree(draft, ignore_errors=True)


def _map(folder: Path) -> tuple[Tokens, dict[str, int]]:
    try:
        source, target, begins, ends, rows = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS)
        dropped = json.loads((folder / "dropped.json").read_text())
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"the kept tokens in {folder} cannot be read ({error}); remove the folder") from None
    return Tokens((source, target), (begins, ends), rows), dropped
