"""Independent references in NumPy, float64: loops and dense arrays, nothing clever.

Nothing here imports the code under test. Arrays have the layout [b,h,l,d].
"""

import numpy as np


def draw(*shape, seed=0):
    """Standard normal float32, the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def at_real(x, keep):
    """The entries of x [b,h,l,...] at positions that are not padding."""
    return np.asarray(x)[np.broadcast_to(np.asarray(keep)[:, None], x.shape[:3])]


def unit_keys(q, scale="official"):
    """Shared-QK keys: q / |q| (with the code's 1e-6 under the mean square), or / sqrt(d) too."""
    q = np.asarray(q, np.float64)
    d = q.shape[-1]
    keys = q / np.sqrt((q * q).sum(-1, keepdims=True) + d * 1e-6)
    return keys / np.sqrt(d) if scale == "paper" else keys


def dense(logits, v, legal, counts=1.0, drop=1.0):
    """Row by row: softmax over legal keys of logits + ln counts, times `drop`, times v.

    logits, legal, counts, drop [...,l,m]; v [...,m,e]. Rows without a legal key are zero.
    """
    logits, legal = np.broadcast_arrays(np.asarray(logits, np.float64), legal)
    weights = np.zeros(logits.shape)
    counts = np.broadcast_to(counts, logits.shape)
    for row in np.ndindex(logits.shape[:-1]):
        seen = np.flatnonzero(legal[row])
        if len(seen):
            x = logits[row][seen] + np.log(counts[row][seen])
            x = np.exp(x - x.max())
            weights[row][seen] = x / x.sum()
    return (weights * drop) @ np.asarray(v, np.float64)


def attention(q, k, v, causal=True, keep=None):
    """Ordinary attention: softmax(q k^T / sqrt(d)) v."""
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return dense(logits, v, pairs(q.shape[2], k.shape[2], causal, keep, itself=True))


def pairs(length, m, causal, keep, itself):
    """Who may see whom: bool [1 or b,1,l,m]."""
    i, j = np.arange(length)[:, None], np.arange(m)[None, :]
    legal = (j <= i) if causal else np.ones((length, m), bool)
    if not itself:
        legal = legal & (i != j)
    legal = legal[None, None]
    if keep is not None:
        legal = legal & np.asarray(keep)[:, None, None, :]
    return legal


def shared_gradients(q, v, do, causal=True, keep=None, counts=1.0, drop=1.0):
    """Gradients of sum(do * o) by q and v, where o is shared-QK attention with official keys.

    Written out from the softmax's derivative; `drop` multiplies the weights of seen pairs.
    """
    q, v, do = (np.asarray(x, np.float64) for x in (q, v, do))
    b, h, length, d = q.shape
    keys = unit_keys(q)
    counts = np.broadcast_to(np.asarray(counts, np.float64), (b, h, length, length))
    legal = pairs(length, length, causal, keep, itself=False) & (counts > 0)
    eye = np.broadcast_to(np.eye(length), legal.shape)
    p = dense(q @ keys.swapaxes(-1, -2), eye, legal, np.where(counts > 0, counts, 1.0))
    real = np.ones((b, length), bool) if keep is None else np.asarray(keep)
    alone = ~legal.any(-1) & real[:, None]
    dv = (p * drop).swapaxes(-1, -2) @ do + np.where(alone[..., None], do, 0.0)
    dp = (do @ v.swapaxes(-1, -2)) * drop
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dk = ds.swapaxes(-1, -2) @ q
    norm = np.sqrt((q * q).sum(-1, keepdims=True) + d * 1e-6)
    dq = ds @ keys + dk / norm - q * (dk * q).sum(-1, keepdims=True) / norm**3
    return dq, dv


def shared(q, v, causal=True, keep=None, scale="official", counts=1.0):
    """Shared-QK attention; counts [b,h,l,l] are the sightings, 0 where nothing is seen.

    A position that sees nothing legal copies its own value, unless it is padding.
    """
    q, v = np.asarray(q, np.float64), np.asarray(v, np.float64)
    b, _, length, _ = q.shape
    logits = q @ unit_keys(q, scale).swapaxes(-1, -2)
    counts = np.broadcast_to(np.asarray(counts, np.float64), logits.shape)
    legal = pairs(length, length, causal, keep, itself=False) & (counts > 0)
    o = dense(logits, v, legal, np.where(counts > 0, counts, 1.0))
    real = np.ones((b, length), bool) if keep is None else np.asarray(keep)
    alone = ~legal.any(-1) & real[:, None]
    return np.where(alone[..., None], v, o)


def sightings(buckets, chunk, before, after, keep=None, within_bucket=False, wrap=False):
    """How often position i meets position j in a window, over all rounds: int [b,h,l,l].

    Plays the algorithm with lists: every round is a sorted list, cut into chunks; with
    `wrap` the chunks of all rounds form one ring, otherwise a window ends with its round.
    Positions that pad the last chunk are -1 and meet nobody.
    """
    buckets = np.asarray(buckets)
    b, h, rounds, length = buckets.shape
    found = np.zeros((b, h, length, length), int)
    for x in range(b):
        real = np.ones(length, bool) if keep is None else np.asarray(keep)[x]
        for y in range(h):
            ring = []
            for r in range(rounds):
                rank = lambda p: (not real[p], buckets[x, y, r, p] if real[p] else 0, p)  # noqa: E731, B023
                order = sorted(range(length), key=rank)
                order += [-1] * (-length % chunk)
                ring += [(r, order[s : s + chunk]) for s in range(0, len(order), chunk)]
            for t, (r, mine) in enumerate(ring):
                for step in range(-before, after + 1):
                    u = t + step
                    if wrap and not within_bucket:
                        u %= len(ring)
                    if not 0 <= u < len(ring) or (ring[u][0] != r and not wrap):
                        continue
                    if ring[u][0] != r and within_bucket:
                        continue
                    for i in mine:
                        for j in ring[u][1]:
                            if min(i, j) < 0:
                                continue
                            same = buckets[x, y, r, i] == buckets[x, y, r, j] and real[i] == real[j]
                            if same or not within_bucket:
                                found[x, y, i, j] += 1
    return found
