"""The largest scores of many lists at once: sorting networks with one list per column.

`lax.top_k` handles rows one after the other. Here row r of an array [n,t] holds entry r of all t
lists, so every step is an elementwise one that a processor does for many lists at the same time.
Order among equal scores is not specified.
"""

import jax
import jax.numpy as jnp


def ceiling(k):
    """The power of two that networks for the k largest work with."""
    return 1 << (k - 1).bit_length()


def largest(k, score, index):
    """The k largest entries of each column, sorted: score, index [n,t] -> both [k,t], n a multiple of `ceiling(k)`."""
    best = jax.tree.map(lambda x: x[0], sorted_lists(ceiling(k), score, index))
    rest = (score[ceiling(k) :], index[ceiling(k) :])
    return tuple(x[:k] for x in merge(best, *rest)) if rest[0].shape[0] else tuple(x[:k] for x in best)


def merge(best, score, index):
    """The largest entries of best (both [K,t], sorted, K a power of two) and of score, index [n,t] -> both [K,t]."""
    lists = sorted_lists(best[0].shape[0], score, index)
    if lists[0].shape[0] == 1:
        return join(best, jax.tree.map(lambda x: x[0], lists))
    return jax.lax.scan(lambda best, new: (join(best, new), None), best, lists)[0]


def sorted_lists(K, score, index):
    """Cuts each column into lists of K and sorts these: [n,t] -> [n/K,K,t], largest first."""
    n, t = score.shape
    if n % K:
        raise ValueError(f"{n} entries cannot be cut into lists of {K}; pad them with scores that never win")
    pair, length = (score, index), 1
    while length < K:
        pair = _exchange(_neighbours(pair, length), mirrored=True)
        pair = _clean(pair, length // 2)
        length *= 2
    return tuple(x.reshape(n // K, K, t) for x in pair)


def join(one, two):
    """The upper half of two sorted lists together: (score, index) pairs [K,t] -> one, sorted; K a power of two."""
    upper = one[0] >= two[0][::-1]
    pair = tuple(jnp.where(upper, a, b[::-1]) for a, b in zip(one, two, strict=True))
    return _clean(pair, one[0].shape[0] // 2)


def _clean(pair, distance):
    """Sorts bitonic runs of twice `distance` rows, [n,t]."""
    while distance:
        if distance > 1:  # two steps in one pass: half the traffic
            pair = _two_steps(pair, distance)
            distance //= 4
        else:
            pair = _exchange(_neighbours(pair, distance))
            distance = 0
    return pair


def _neighbours(pair, distance):
    """[n,t] -> the rows to compare, each [n/2d,d,t]: (first score, first index), (second score, second index)."""
    score, index = (x.reshape(-1, 2, distance, x.shape[-1]) for x in pair)
    return (score[:, 0], index[:, 0]), (score[:, 1], index[:, 1])


def _ordered(a, b):
    """Two (score, index) pairs, the larger score first."""
    right = a[0] >= b[0]
    return (
        tuple(jnp.where(right, x, y) for x, y in zip(a, b, strict=True)),
        tuple(jnp.where(right, y, x) for x, y in zip(a, b, strict=True)),
    )


def _exchange(two, mirrored=False):
    """Larger rows first; mirrored: row r is compared with the last but r, as merging two sorted lists begins."""
    a, b = two
    if mirrored:
        b = tuple(x[:, ::-1] for x in b)
    return _stack(_ordered(a, b))


def _two_steps(pair, distance):
    """Exchanges at `distance` and at half of it."""
    score, index = (x.reshape(-1, 4, distance // 2, x.shape[-1]) for x in pair)
    a, b, c, d = ((score[:, part], index[:, part]) for part in range(4))
    (a, c), (b, d) = _ordered(a, c), _ordered(b, d)
    return _stack((*_ordered(a, b), *_ordered(c, d)))


def _stack(parts):
    """Pairs of [n,d,t] -> one pair [n parts d,t], the parts of each run behind one another."""
    t = parts[0][0].shape[-1]
    return tuple(jnp.stack(xs, axis=1).reshape(-1, t) for xs in zip(*parts, strict=True))
