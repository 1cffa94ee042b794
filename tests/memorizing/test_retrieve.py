"""Retrieval, against loops in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from oracles import draw

from memorizing import ranking, retrieve, shards
from memorizing.memory import read as read_memory
from memorizing.retrieve import EMPTY, Search

B, H, L, D, K = 2, 2, 5, 4, 4
find = jax.jit(retrieve.find, static_argnums=(0, 1))
EXACT = [
    Search("exact", tile=3, block=64),  # several tiles, blocks and rounds, none of which divide evenly
    Search("exact"),
    Search("sorted", block=30),
    Search("approximate", block=50),
]


def memory(M, seed=0):
    return draw(B, H, L, D, seed=seed), draw(B, H, M, D, seed=seed)


def scores(q, keys):
    return np.einsum("bhld,bhnd->bhln", q.astype(np.float64), np.asarray(keys, np.float64))


def check(found, q, keys, size, wanted=None):
    """Found is sorted, real, without repetition, and holds the wanted entries: the best unless given."""
    exact = scores(q, keys)
    for at in np.ndindex(B, H, L):
        count = min(size[at[0]], found.index.shape[-1])
        np.testing.assert_array_equal(found.real[at], np.arange(found.index.shape[-1]) < count)
        index = np.asarray(found.index[at])[:count]
        best = np.argsort(-exact[at][: size[at[0]]])[:count] if wanted is None else wanted(exact[at], size[at[0]])
        np.testing.assert_array_equal(index, best[:count])
        np.testing.assert_allclose(found.score[at][:count], exact[at][index], atol=1e-5)
    assert (np.asarray(found.index) >= 0).all() and (np.asarray(found.index) < keys.shape[2]).all()
    assert (np.asarray(found.score)[~np.asarray(found.real)] == EMPTY).all()


@pytest.mark.parametrize("search", EXACT, ids=str)
def test_exact_ways_find_the_best(search):
    q, keys = memory(150)
    for size in ([150, 97], [3, 0], [64, 65]):
        check(find(search, K, q, keys, np.array(size)), q, keys, size)


def bucket_winners(L, winners, block):
    """The loop: of every residue class modulo L in every block the best entries, then the best of all."""

    def wanted(scores, size):
        kept = []
        for first in range(0, size, block):
            for bucket in range(L):
                members = range(first + bucket, min(first + block, size), L)
                kept += sorted(members, key=lambda i: -scores[i])[:winners]
        return np.array(sorted(kept, key=lambda i: -scores[i])[:K], int)

    return wanted


@pytest.mark.parametrize("winners", [1, 2])
def test_buckets_keep_the_best_of_every_residue_class(winners):
    q, keys = memory(150, seed=1)
    search = Search("buckets", buckets=8, winners=winners, block=64)
    for size in ([150, 97], [64, 20]):
        found = find(search, K, q, keys, np.array(size))
        check(found, q, keys, size, bucket_winners(8, winners, 64))
        np.testing.assert_array_equal(
            found.index[..., 0], [scores(q, keys)[b, ..., : size[b]].argmax(-1) for b in range(B)]
        )


def test_buckets_that_repeat_after_a_full_ring_are_those_of_the_entries():
    # At the second lap entry i holds a younger pair, but it is still in bucket i mod L.
    q, keys = memory(32, seed=2)
    found = find(Search("buckets", buckets=8, block=32), K, q, np.roll(keys, 5, axis=2), np.array([32, 32]))
    check(found, q, np.roll(keys, 5, axis=2), [32, 32], bucket_winners(8, 1, 32))


# Facts: 32 best in L buckets, one or two winners; also 128 best.
@pytest.mark.parametrize(
    ("k", "buckets", "winners", "share"),
    [
        (32, 32, 1, 0.638),
        (32, 64, 1, 0.792),
        (32, 128, 1, 0.888),
        (32, 256, 1, 0.942),
        (32, 1024, 1, 0.985),
        (128, 128, 1, 0.634),
        (32, 32, 2, 0.902),
        (32, 64, 2, 0.970),
        (32, 128, 2, 0.992),
    ],
)
def test_recall_is_that_of_random_placements(k, buckets, winners, share):
    assert abs(retrieve.recall(k, buckets, winners) - share) < 6e-4
    thrown = np.random.default_rng(0).integers(buckets, size=(4000, k))
    kept = np.mean([np.minimum(np.bincount(row, minlength=buckets), winners).sum() for row in thrown]) / k
    assert abs(retrieve.recall(k, buckets, winners) - kept) < 0.01


@pytest.mark.parametrize(("buckets", "winners"), [(32, 1), (32, 2), (64, 1)])
def test_measured_recall_is_the_formulas(buckets, winners):
    rng = np.random.default_rng(3)
    q, keys = (rng.normal(size=s).astype(np.float32) for s in ((1, 1, 400, 16), (1, 1, 2048, 16)))
    found = find(Search("buckets", buckets=buckets, winners=winners, block=2048), 32, q, keys, np.array([2048]))
    best = np.argsort(-scores(q, keys), axis=-1)[..., :32]
    hits = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found.index[0, 0], best[0, 0], strict=True)]) / 32
    assert abs(hits - retrieve.recall(32, buckets, winners)) < 0.01
    np.testing.assert_array_equal(found.index[..., 0], best[..., 0])


def test_equal_scores_are_found_once_each():
    q, keys = np.ones((1, 1, 3, D), np.float32), np.ones((1, 1, 40, D), np.float32)
    for search in (Search("exact", block=32), Search("sorted"), Search("buckets", buckets=8, block=32)):
        index = np.asarray(find(search, K, q, keys, np.array([37])).index)
        assert all(len(set(row)) == K and max(row) < 37 for row in index[0, 0])


def test_half_precision_keys():
    q, keys = memory(150)
    keys = keys.astype(jnp.bfloat16)
    check(find(Search("exact", tile=3, block=64), K, q, keys, np.array([150, 97])), q, keys, [150, 97])


@pytest.mark.parametrize("k", [1, 3, 8])
def test_networks_sort_like_numpy(k):
    score = np.round(draw(24, 7, seed=k), 1)  # with ties
    row = np.broadcast_to(np.arange(24, dtype=np.int32)[:, None], score.shape)
    top, index = jax.jit(ranking.largest, static_argnums=0)(k, score, row)
    np.testing.assert_array_equal(top, -np.sort(-score, axis=0)[:k])
    np.testing.assert_array_equal(np.take_along_axis(score, np.asarray(index), 0), top)
    assert all(len(set(column)) == k for column in np.asarray(index).T)
    with pytest.raises(ValueError, match="24 entries cannot be cut into lists of 16"):
        ranking.largest(9, score, row)


@pytest.mark.parametrize("search", [Search("exact", block=32), Search("sorted")], ids=str)
def test_a_memory_spread_over_devices_gives_the_same(search):
    q, keys = memory(160)
    layout = shards.Layout(Mesh(np.array(jax.devices()[:4]), ("entries",)), entries="entries")
    for size in (np.array([160, 47]), np.array([3, 121])):
        spread = jax.jit(lambda *xs: shards.find(layout, search, K, *xs))(q, keys, size)
        check(spread, q, keys, size)
    with pytest.raises(ValueError, match="k = 64 at most their share"):
        shards.find(layout, search, 64, q, keys, size)


@pytest.mark.parametrize("search", [Search("sorted", block=64), Search("exact", block=64, tile=3)], ids=str)
def test_the_way_of_accelerators_finds_and_reads_the_same(search, monkeypatch):
    """All slots at once and block after block, entries taken out of whole stores: here on a processor."""
    (q, keys), size = memory(150), np.array([150, 97])
    wanted = find(search, K, q, keys, size)
    attend = lambda q, found: read_memory(q, keys, -keys, found).output  # noqa: E731
    output, back = jax.vjp(lambda q: attend(q, wanted), q)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    found = retrieve.find(search, K, q, keys, size)
    check(found, q, keys, size)
    there, slope = jax.vjp(lambda q: attend(q, found), q)
    np.testing.assert_allclose(there, output, atol=1e-6)
    np.testing.assert_allclose(slope(output)[0], back(output)[0], atol=1e-6)


def test_no_gradient_through_the_search():
    q, keys = memory(150)
    gradient = jax.grad(lambda q, keys: find(EXACT[2], K, q, keys, np.array([150, 97])).score.sum(), argnums=(0, 1))
    assert all((np.asarray(x) == 0).all() for x in gradient(q, keys))


def test_choice_by_backend_and_size():
    auto = Search()
    assert retrieve.choose(auto, 32, 65536, "tpu").method == "approximate"
    assert retrieve.choose(auto, 32, 65536, "gpu").method == "buckets"
    assert retrieve.choose(auto, 32, 65536, "cpu").method == "exact"
    assert {retrieve.choose(auto, 32, 512, backend).method for backend in ("cpu", "gpu", "tpu")} == {"sorted"}
    chosen = retrieve.choose(auto, 32, 65536, "gpu")
    assert retrieve.recall(32, chosen.buckets) >= 0.9 > retrieve.recall(32, chosen.buckets // 2)
    for M in (1536, 8192, 65536):
        for method in ("exact", "buckets"):
            block = retrieve.choose(Search(method), 32, M, "cpu").block
            assert block <= 8192 and block * -(-M // block) < 1.4 * M


def test_wrong_use_is_explained():
    q, keys = memory(150)
    with pytest.raises(ValueError, match="did you mean 'buckets'"):
        Search("bucket")
    with pytest.raises(ValueError, match="recall is 1"):
        Search(recall=1.0)
    with pytest.raises(ValueError, match="k is 200 but the memory has only 150"):
        retrieve.find(Search(), 200, q, keys, np.array([1, 1]))
    with pytest.raises(ValueError, match=r"\[b,h,M,d\]"):
        retrieve.find(Search(), 2, q, keys[..., :2], np.array([1, 1]))
    with pytest.raises(ValueError, match="multiple of 4"):
        retrieve.find(Search("buckets", buckets=10), K, q, keys, np.array([1, 1]))
