"""Random numbers as pure functions of where they are used.

Philox is a counter-based generator: the key names a stream, the counter a place in it, and any place is reached at
once. So example 1,200,000 costs as much as example 0, and a resumed run need not replay anything. Only the raw 64-bit
output is used, which NumPy keeps the same over its releases; its distributions (`integers`, `permutation`) may change.
"""

import functools

import numpy as np

# The second half of the key: streams under one seed that never meet.
STREAMS = {"train": 0, "validation": 1, "test": 2, "order": 3}


def draws(seed: int, stream: str, index: int, count: int) -> np.ndarray:
    """uint64 [count], uniform over all 64-bit numbers; a pure function of (seed, stream, index).

    seed and index are at least 0 and below 2**64; count is below 2**128, so that two indices never overlap.
    """
    key = np.array([seed, STREAMS[stream]], np.uint64)
    counter = np.array([0, 0, index, 0], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)


@functools.lru_cache(maxsize=4)
def permutation(size: int, seed: int, epoch: int) -> np.ndarray:
    """int64 [size]: the order in which pass `epoch` over `size` examples visits them (read-only)."""
    order = np.argsort(draws(seed, "order", epoch, size), kind="stable")
    order.flags.writeable = False
    return order


def place(size: int, index: int, seed: int | None) -> int:
    """Which of `size` stored examples stands at position `index` of an endless stream of passes over them.

    With a seed every pass has its own order; without one (None) the stored order is kept.
    """
    epoch, offset = divmod(index, size)
    return offset if seed is None else int(permutation(size, seed, epoch)[offset])
