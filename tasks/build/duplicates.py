"""Near duplicates, by MinHash: forks of a repository, versions of a paper, the same page with another date.

A text is the set of its shingles, five words in a row, a word being letters and digits whatever their case. A signature
is 128 numbers; two texts agree in each of them with a probability equal to the Jaccard similarity of their sets. One
hash serves all 128: it sorts shingles into as many bins, of which the smallest counts (one permutation hashing), and an
empty bin borrows from another that is drawn for it (optimal densification, Shrivastava, ICML 2017). Of each minimum 16
bits are kept (b-bit MinHash), so that four of them are the key of a band, and 32 bands find the pairs worth comparing.
"""

import functools
import hashlib
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

WORDS, BINS = 5, 128
CHUNK = 2**18  # bytes read at a time
BASE, STEP = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93  # odd, so that they have inverses modulo 2**64
RULE = (
    f"MinHash of {WORDS}-word shingles, {BINS} bins of 16 bits, compared where one of {BINS // 4} bands of 4 is equal"
)


def signature(data: bytes) -> np.ndarray:
    """uint16 [128] of a text in UTF-8; the same for the same words on every machine."""
    least = np.full(BINS, 2**64 - 1, np.uint64)
    found = np.zeros(BINS, bool)
    tail = np.zeros(0, np.uint64)
    for words in _words(data):
        words = np.concatenate([tail, words])
        _lower(least, found, _shingles(words))
        tail = words[-(WORDS - 1) :]
    if not found.any():  # fewer words than a shingle has
        whole = (
            np.array([*tail, 0], np.uint64) if len(tail) else np.frombuffer(hashlib.sha256(data).digest()[:8], "<u8")
        )
        _lower(least, found, _mixed(np.cumsum(whole * _powers(STEP, len(whole)), dtype=np.uint64)[-1:]))
    return (_mixed(_dense(least, found)) & np.uint64(0xFFFF)).astype(np.uint16)


def similarity(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """float [...]: share of equal numbers in signatures uint16 [..., 128], which estimates the Jaccard similarity."""
    return np.mean(one == other, axis=-1)


def clusters(signatures: np.ndarray, keys: Sequence[Sequence[Hashable]], least: float) -> np.ndarray:
    """int64 [n]: for each document the first one that it is connected with, by a key or by likeness.

    signatures  uint16 [n, 128]
    keys        for each document what it has in common with those that it belongs with
    least       similarity from which on two documents are near duplicates; above 1 for none
    """
    forest = Forest(len(signatures))
    first: dict[Hashable, int] = {}
    for number, held in enumerate(keys):
        for key in held:
            forest.join(first.setdefault(key, number), number)
    bands = np.ascontiguousarray(signatures).view(np.uint64)
    for band in range(bands.shape[1] if least <= 1 else 0):
        for members in _runs(bands[:, band]):
            _join_alike(forest, signatures, members, least)
    return np.array([forest.root(number) for number in range(len(signatures))], np.int64)


def _join_alike(forest: "Forest", signatures: np.ndarray, members: np.ndarray, least: float) -> None:
    """Joins those of the members that are alike.

    Each is compared with those that were like none before it, not with all: a thousand forks of one repository cost a
    thousand comparisons, not half a million.
    """
    leaders = members[:1]
    for one in members[1:]:
        if len(leaders) == 1 and forest.root(int(one)) == forest.root(int(leaders[0])):
            continue
        near = leaders[similarity(signatures[leaders], signatures[one]) >= least]
        for other in near:
            forest.join(int(other), int(one))
        if not len(near):
            leaders = np.append(leaders, one)


class Forest:
    """Disjoint sets of 0..n-1; a set is known by its smallest member."""

    def __init__(self, size: int):
        self.parent = list(range(size))

    def root(self, one: int) -> int:
        while self.parent[one] != one:
            self.parent[one] = self.parent[self.parent[one]]
            one = self.parent[one]
        return one

    def join(self, one: int, other: int) -> None:
        one, other = sorted((self.root(one), self.root(other)))
        self.parent[other] = one


def _runs(keys: np.ndarray) -> Iterator[np.ndarray]:
    """Numbers of the entries that share a key, in their order, for each key [n] that occurs more than once."""
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order], prepend=~keys[order[:1]], append=~keys[order[-1:]]))
    for run in np.flatnonzero(np.diff(edges) > 1):
        yield order[edges[run] : edges[run + 1]]


@functools.cache
def _classes() -> np.ndarray:
    """uint8 [256]: a byte's letter in lower case; 0 for what stands between words."""
    table = np.zeros(256, np.uint8)
    for byte in range(256):
        if byte >= 128 or chr(byte).isalnum() or chr(byte) == "_":
            table[byte] = ord(chr(byte).lower()) if byte < 128 else byte
    return table


@functools.lru_cache(8)
def _powers(base: int, count: int) -> np.ndarray:
    """uint64 [count]: 1, base, base**2 ... modulo 2**64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


def _words(data: bytes) -> Iterator[np.ndarray]:
    """Hashes uint64 [w] of the words of each piece of a text; pieces end between words if these are not endless."""
    powers, inverses = _powers(BASE, CHUNK + 1), _powers(pow(BASE, -1, 2**64), CHUNK + 1)
    text = np.frombuffer(data, np.uint8)
    begin = 0
    while begin < len(text):
        letters = _classes()[text[begin : begin + CHUNK]]
        if begin + len(letters) < len(text):
            between = np.flatnonzero(letters[-4096:] == 0)
            letters = (
                letters[: len(letters) - min(4096, len(letters)) + int(between[-1]) + 1] if len(between) else letters
            )
        begin += len(letters)
        inside = np.concatenate([[False], letters != 0, [False]])
        starts, stops = np.flatnonzero(inside[1:] & ~inside[:-1]), np.flatnonzero(inside[:-1] & ~inside[1:])
        # A word's hash is a polynomial in its letters: a difference of prefix sums, moved to the word's own beginning.
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(letters * powers[: len(letters)], dtype=np.uint64)])
        yield _mixed((sums[stops] - sums[starts]) * inverses[starts])


def _shingles(words: np.ndarray) -> np.ndarray:
    """Hashes uint64 [w - 4] of each five words in a row."""
    count = max(len(words) - WORDS + 1, 0)
    powers = _powers(STEP, WORDS)
    total = np.zeros(count, np.uint64)
    for place in range(WORDS):
        total += words[place : place + count] * powers[place]
    return _mixed(total)


def _mixed(values: np.ndarray) -> np.ndarray:
    """A permutation of 64-bit numbers after which each bit depends on all (the finaliser of SplitMix64)."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


def _lower(least: np.ndarray, found: np.ndarray, hashes: np.ndarray) -> None:
    """Takes hashes into the bins [128] that their first seven bits name."""
    hashes = np.sort(hashes)
    starts = np.searchsorted(hashes, np.arange(BINS, dtype=np.uint64) << np.uint64(57))
    held = np.diff(np.append(starts, len(hashes))) > 0
    least[held] = np.minimum(least[held], hashes[starts[held]])
    found |= held


def _dense(least: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The bins' minima [128], empty ones filled from the first full one among those drawn for their place."""
    dense, empty, draw = least.copy(), np.flatnonzero(~found), 0
    while len(empty):
        draw += 1
        other = _mixed(empty.astype(np.uint64) + np.uint64(draw << 32)) % np.uint64(BINS)
        full = found[other]
        dense[empty[full]] = least[other[full]]
        empty = empty[~full]
    return dense
