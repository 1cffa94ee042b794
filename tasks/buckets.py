"""Buckets of length: which examples form which batch, as a pure function."""

import numpy as np

from tasks import randomness

# (number of the bucket, int64 [rows] numbers of the examples) of each batch; a batch may hold fewer than its rows.
Batches = list[tuple[int, np.ndarray]]


def lengths_between(shortest: int, longest: int) -> list[int]:
    """[shortest, 2 * shortest, ...] up to the first that is at least `longest`."""
    lengths = [shortest]
    while lengths[-1] < longest:
        lengths.append(2 * lengths[-1])
    return lengths


def plan(lengths: np.ndarray, buckets: list[int], rows: list[int], shuffled: tuple[int, int] | None) -> Batches:
    """The batches of one pass over examples of these lengths, int64 [n], none longer than the last bucket.

    Each example goes to the shortest bucket that holds it, in the order of the pass; bucket i gives batches of rows[i].
    What is left of a bucket goes to the next longer one, up to the longest that any example needs: only that one can
    have a batch that is not full.

    shuffled  (seed, pass): orders examples and batches; None keeps the stored order, the shortest bucket first
    """
    order = np.arange(len(lengths)) if shuffled is None else randomness.permutation(len(lengths), *shuffled)
    home = np.searchsorted(buckets, lengths)[order]
    batches: Batches = []
    left = order[:0]
    last = int(home.max())
    for bucket, size in enumerate(rows[: last + 1]):
        members = np.concatenate([left, order[home == bucket]])
        full = len(members) - len(members) % size
        batches += [(bucket, part) for part in members[:full].reshape(-1, size)]
        left = members[full:]
    if len(left):
        batches.append((last, left))
    if shuffled is not None:
        seed, number = shuffled
        # A stream of its own: that of the examples' order would put equally many batches and examples alike.
        draws = randomness.draws(seed, "train", number, len(batches))
        batches = [batches[place] for place in np.argsort(draws, kind="stable")]
    return batches
