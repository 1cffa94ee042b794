"""LSH attention against independent bookkeeping and the exact softmax over what was seen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from oracles import at_real, draw

from reformer import LSH, Full, Local
from reformer.lsh import lsh_attention

B, H, L, D, C, COUNT = 2, 2, 21, 8, 4, 4
HOLES = np.ones((B, L), bool)
HOLES[0, [0, 1, 5, 20]] = False  # the first position, the second, one inside, the last
HOLES[1] = False  # a row of padding only
ALL = np.ones((B, L), bool)


def ids(rounds, seed=0, length=L):
    return np.random.default_rng([seed, rounds, length]).integers(0, COUNT, (B, H, rounds, length), np.int32)


attention = partial(lsh_attention, count=COUNT)


# causal, padded, within a bucket, corrected, wrapped, before, after, rounds
CASES = {
    "default": (1, 0, 0, 1, 0, 1, 0, 3),
    "authors-later-code": (1, 0, 0, 0, 1, 1, 0, 3),
    "paper-text": (1, 0, 1, 1, 0, 1, 0, 3),
    "padded": (1, 1, 0, 1, 0, 1, 1, 3),
    "both-ways": (0, 1, 0, 1, 0, 1, 1, 3),
    "both-ways-bucket": (0, 1, 1, 0, 0, 1, 1, 3),
    "wrapped-corrected": (1, 1, 0, 1, 1, 1, 0, 3),
    "window-beyond-a-round": (0, 0, 0, 1, 1, 7, 2, 3),
    "window-beyond-the-ring": (1, 0, 0, 1, 1, 8, 1, 1),
    "ring-of-one-round": (0, 1, 0, 0, 1, 3, 2, 1),
    "bucket-ignores-wrap": (1, 0, 1, 1, 1, 1, 1, 3),
    "own-chunk-only": (1, 1, 1, 0, 0, 0, 0, 3),
}


QUICK = ("default", "both-ways-bucket", "wrapped-corrected")
MARKS = {name: () if name in QUICK else pytest.mark.slow for name in CASES}


@pytest.mark.parametrize("case", [pytest.param(case, id=name, marks=MARKS[name]) for name, case in CASES.items()])
def test_output_and_gradient_equal_the_dense_softmax_over_sightings(case):
    causal, padded, bucket, correct, wrap, before, after, rounds = case
    q, v, do = (draw(B, H, L, D, seed=s) for s in range(3))
    keep = HOLES if padded else None
    mask = HOLES if padded else ALL
    do = do * mask[:, None, :, None]
    buckets = ids(rounds)
    attend = partial(
        lsh_attention,
        buckets=buckets,
        count=COUNT,
        chunk=C,
        before=before,
        after=after,
        causal=bool(causal),
        keep=keep,
        within_bucket=bool(bucket),
        correct_duplicates=bool(correct),
        wrap=bool(wrap),
        block=8,
    )

    @jax.jit
    def run(q, v):
        o, back = jax.vjp(attend, q, v)
        return o, back(do)

    o, grads = run(q, v)
    seen = oracles.sightings(buckets, C, before, after, keep, bool(bucket), bool(wrap))
    counts = (seen > 0) if correct else seen
    reference = oracles.shared(q, v, bool(causal), keep, counts=counts)
    np.testing.assert_allclose(at_real(o, mask), at_real(reference, mask), atol=5e-6)
    assert np.isfinite(o).all()
    for got, want in zip(grads, oracles.shared_gradients(q, v, do, bool(causal), keep, counts), strict=True):
        np.testing.assert_allclose(got, want, atol=3e-5)


def test_the_gradient_oracle_is_plain_autodiff():
    q, v, do = (draw(B, H, L, D, seed=s) for s in range(3))
    seen = oracles.sightings(ids(3), C, 1, 0) * np.tri(L, k=-1, dtype=int)

    def dense(q, v):
        k = q / jnp.sqrt(jnp.sum(q * q, -1, keepdims=True) + D * 1e-6)
        x = jnp.einsum("bhid,bhjd->bhij", q, k) + jnp.log(jnp.maximum(seen, 1.0))
        p = jnp.where(seen > 0, jax.nn.softmax(jnp.where(seen > 0, x, -1e30), -1), 0.0)
        o = jnp.where((seen > 0).any(-1, keepdims=True), jnp.einsum("bhij,bhje->bhie", p, v), v)
        return jnp.sum(do * o)

    for got, want in zip(
        jax.jit(jax.grad(dense, (0, 1)))(q, v),
        oracles.shared_gradients(q, v, do, counts=seen),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, atol=3e-5)


def test_published_checks_of_window_counts():
    """One window over everything is full attention; several uncorrected rounds are not."""
    q, v = draw(B, H, 16, D), draw(B, H, 16, D, seed=1)
    full = oracles.shared(q, v)

    def run(rounds, chunk, before, correct):
        attend = partial(attention, chunk=chunk, before=before, correct_duplicates=correct, wrap=True)
        return jax.jit(attend)(q, v, ids(rounds, length=16))

    for rounds, chunk, before in ((1, 16, 0), (1, 16, 1), (1, 8, 1)):
        np.testing.assert_allclose(run(rounds, chunk, before, False), full, atol=5e-6)
    seen = oracles.sightings(ids(3, length=16), 8, 1, 0, wrap=True)
    assert (seen.min(), seen.max()) == (2, 4)
    assert np.abs(run(3, 8, 1, False) - full).max() > 0.01
    np.testing.assert_allclose(run(3, 8, 1, True), full, atol=5e-6)


@pytest.mark.parametrize("length", [1, 16])
def test_input_within_a_chunk_is_exact_attention(length):
    q, v = draw(B, H, length, D), draw(B, H, length, D, seed=1)
    setting = LSH(rounds=2, chunk=16)
    attend = jax.jit(setting.attend)
    o = attend(q, None, v, jax.random.key(0))
    np.testing.assert_array_equal(o, jax.jit(Full().attend)(q, None, v))
    np.testing.assert_allclose(o, oracles.shared(q, v), atol=5e-6)
    # What follows a prefix does not change it while one window covers all.
    prefix = attend(q[:, :, :2], None, v[:, :, :2])
    np.testing.assert_allclose(o[:, :, :2], prefix, atol=1e-6)


def test_settings_reach_the_function_and_decisions_can_be_kept():
    q, v = draw(B, H, L, D), draw(B, H, L, D, seed=1)
    setting = LSH(rounds=3, chunk=C, within_bucket=True, scale="paper", buckets=(4, 2))
    key = jax.random.key(5)
    attend = jax.jit(lambda q, key, decision: setting.attend(q, None, v, key, decision=decision))
    o = attend(q, key, None)
    _, h, length, d = q.shape
    kept = jax.jit(setting.decide)(q, setting.draw(jax.random.fold_in(key, 0), h, length, d))
    assert kept.shape == (B, H, 3, L)
    seen = oracles.sightings(kept, C, 1, 0, within_bucket=True)
    np.testing.assert_allclose(o, oracles.shared(q, v, scale="paper", counts=seen > 0), atol=5e-6)
    # Other vectors, same decision: what the reversible stack needs to repeat its forward pass.
    moved = q + 0.5 * draw(B, H, L, D, seed=9)
    again = attend(moved, jax.random.key(6), kept)
    reference = oracles.shared(moved, v, scale="paper", counts=seen > 0)
    np.testing.assert_allclose(again, reference, atol=5e-6)


@pytest.mark.slow
def test_block_does_not_change_the_result():
    q, v, do = (draw(B, H, 37, D, seed=s) for s in range(3))
    buckets = ids(2, length=37)

    def run(block, wrap=False):
        attend = partial(attention, chunk=4, wrap=wrap, dropout=0.5, block=block)
        attend = partial(attend, buckets=buckets, key=jax.random.key(0))
        return jax.jit(jax.grad(lambda q, v: jnp.sum(do * attend(q, v)), (0, 1)))(q, v)

    whole = run(10_000)
    for block in (16, 80):  # four groups of a sequence; two sequences at a time
        for one, other in zip(whole, run(block), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    run = jax.jit(partial(attention, chunk=4, wrap=True), static_argnames="block")
    whole, grouped = (run(q, v, buckets=buckets, block=block) for block in (10_000, 16))
    np.testing.assert_allclose(whole, grouped, atol=1e-6)


def test_later_values_and_vectors_have_no_gradient_in_earlier_outputs():
    q, v = draw(B, H, L, D), draw(B, H, L, D, seed=1)
    t = 11

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1))
    def early(q, v):
        return jnp.sum(attention(q, v, ids(3), chunk=C, before=1, after=1)[:, :, :t] ** 2)

    for gradient in early(q, v)[1]:
        assert np.abs(gradient[:, :, :t]).max() > 0
        assert not np.asarray(gradient)[:, :, t:].any()
    later = v.copy()
    later[:, :, t:] = 1e6
    assert early(q, v)[0] == early(q, later)[0]


def test_content_of_padding_changes_nothing_and_masks_are_not_remembered():
    setting = LSH(rounds=2, chunk=C)
    run = jax.jit(lambda q, v, keep: setting.attend(q, None, v, jax.random.key(3), keep=keep))
    q, v = draw(B, H, L, D), draw(B, H, L, D, seed=1)
    masks = {name: np.ones((B, L), bool) for name in ("first", "second", "row", "tail", "none")}
    masks["first"][0, 0] = masks["second"][0, 1] = masks["row"][1] = False
    masks["tail"][:, 15:] = False
    outputs = {}
    for name, keep in masks.items():
        hidden = ~keep[:, None, :, None]
        outputs[name] = at_real(run(q, v, keep), keep)
        other = run(np.where(hidden, 77.0, q), np.where(hidden, -99.0, v), keep)
        np.testing.assert_array_equal(outputs[name], at_real(other, keep))
        assert np.isfinite(run(q, v, keep)).all()
    assert not np.allclose(at_real(run(q, v, masks["none"]), masks["first"]), outputs["first"])
    np.testing.assert_array_equal(at_real(run(q, v, masks["tail"]), masks["tail"]), outputs["tail"])
    # Padding takes no bucket: the real part alone has the same output.
    attend = jax.jit(partial(attention, chunk=C))
    alone = attend(q[:, :, :15], v[:, :, :15], ids(2)[..., :15])
    padded = attend(q, v, ids(2), keep=masks["tail"])
    np.testing.assert_allclose(alone, padded[:, :, :15], atol=1e-6)


def test_rows_that_see_nothing():
    q, v = draw(B, H, L, D), draw(B, H, L, D, seed=1)
    apart = np.broadcast_to(np.arange(L, dtype=np.int32), (B, H, 1, L))  # a bucket each
    run = jax.jit(partial(lsh_attention, count=L, chunk=C, within_bucket=True))
    np.testing.assert_array_equal(run(q, v, apart), v)
    o = run(q, v, apart, keep=HOLES)
    np.testing.assert_array_equal(at_real(o, HOLES), at_real(v, HOLES))
    assert not o[1].any()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_any_finite_input_gives_finite_results(dtype):
    scales = np.array([0.0, 1e-20, 1.0, 1e4], np.float32).repeat(6)[:L, None]
    q = jnp.asarray(draw(B, H, L, D) * scales, dtype)
    v = jnp.asarray(draw(B, H, L, D, seed=1), dtype)

    @jax.jit
    def run(q, v):
        o, back = jax.vjp(lambda q, v: LSH(rounds=2, chunk=C).attend(q, None, v, keep=HOLES), q, v)
        return o, *back(jnp.ones_like(o))

    assert run(q, v)[0].dtype == dtype
    for x in run(q, v):
        assert np.isfinite(np.asarray(x, np.float32)).all()


@pytest.mark.slow
def test_bfloat16_is_near_float32():
    q, v = (jnp.asarray(draw(B, H, L, D, seed=s), jnp.bfloat16) for s in (0, 1))
    run = jax.jit(partial(attention, chunk=C))
    low = run(q, v, ids(3))
    high = run(q.astype(jnp.float32), v.astype(jnp.float32), ids(3))
    np.testing.assert_allclose(np.asarray(low, np.float32), high, atol=0.04)


def test_dropout_acts_after_the_softmax_and_is_differentiated():
    rate = 0.25
    q, v, do = (draw(1, H, L, D, seed=s) for s in range(3))
    buckets = ids(1)[:1]
    plain = jax.jit(partial(attention, buckets=buckets, chunk=C))
    run = jax.jit(partial(attention, buckets=buckets, chunk=C, dropout=rate, key=jax.random.key(3)))
    eye = np.broadcast_to(np.eye(L, dtype=np.float32), (1, H, L, L))
    weights = np.asarray(plain(q, eye))
    seen = oracles.sightings(buckets, C, 1, 0) * np.tri(L, k=-1, dtype=int)
    drop = np.where(seen > 0, np.asarray(run(q, eye)) / np.where(weights > 0, weights, 1.0), 1.0)
    assert np.all(np.isclose(drop, 0) | np.isclose(drop, 1 / (1 - rate)) | (seen == 0))
    assert 0.1 < np.isclose(drop, 0)[seen > 0].mean() < 0.4
    wanted = oracles.shared_gradients(q, v, do, counts=seen, drop=drop)
    for got, want in zip(jax.jit(jax.grad(lambda q, v: jnp.sum(do * run(q, v)), (0, 1)))(q, v), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=3e-5)


def test_hashing_finds_what_is_far_away_and_its_ablation_does_not():
    """Every second half repeats the first: only by content can the twin be found."""
    length, chunk, d = 256, 8, 16
    x = draw(1, 1, length // 2, d)
    q = np.concatenate([x, x], 2) * 20 / np.sqrt((x * x).sum(-1)).mean()
    v = np.concatenate([draw(1, 1, length // 2, d, seed=1), np.zeros_like(x)], 2)

    def found(o):
        guess = np.asarray(o)[0, 0, length // 2 :] @ v[0, 0, : length // 2].T
        return (guess.argmax(-1) == np.arange(length // 2)).mean()

    setting = LSH(rounds=4, chunk=chunk)
    run = jax.jit(lambda decision: setting.attend(q, None, v, decision=decision))
    hashed = jax.jit(setting.decide)(q, setting.draw(jax.random.key(0), *q.shape[1:]))
    four, one = found(run(hashed)), found(run(hashed[:, :, :1]))
    in_time = np.zeros((1, 1, 4, length), np.int32)  # one bucket: sorted by position
    assert four > 0.95
    assert four >= one > 0.5
    assert found(run(in_time)) < 0.1
    assert found(jax.jit(Local(chunk=chunk, shared=True).attend)(q, None, v)) < 0.1


@pytest.mark.slow
def test_memory_is_linear_in_length_and_flat_in_rounds():
    def temporary(length, rounds):
        x = jax.ShapeDtypeStruct((1, 1, length, D), jnp.float32)
        setting = LSH(rounds=rounds, chunk=16, buckets=(16, 16), block=1024)
        run = jax.grad(lambda q, v: setting.attend(q, None, v).sum(), (0, 1))
        return jax.jit(run).lower(x, x).compile().memory_analysis().temp_size_in_bytes

    base = temporary(4096, 1)
    assert temporary(16_384, 1) < 4.4 * base
    assert temporary(4096, 5) < 2 * base  # what grows are the integers of the order


def test_gathers_have_gathers_as_gradients():
    x = jax.ShapeDtypeStruct((B, H, L, D), jnp.float32)
    gradient = jax.grad(lambda q, v: LSH(chunk=C).attend(q, None, v).sum(), (0, 1))
    program = str(jax.make_jaxpr(gradient)(x, x))
    assert "gather" in program
    assert "scatter-add" not in program
    assert "scatter_add" not in program


def test_sharded_batch_gives_the_same():
    devices = jax.devices()
    if len(devices) < 2:
        pytest.skip("one device only")
    q, v = draw(4, H, L, D), draw(4, H, L, D, seed=1)
    run = jax.jit(lambda q, v: LSH(rounds=2, chunk=C).attend(q, None, v, jax.random.key(0)))
    mesh = jax.sharding.Mesh(np.array(devices[:2]), ("data",))
    split = jax.NamedSharding(mesh, jax.P("data"))
    there = run(jax.device_put(q, split), jax.device_put(v, split))
    np.testing.assert_allclose(there, run(q, v), atol=1e-6)


def test_wrong_use_is_explained():
    q = draw(B, H, L, D)
    with pytest.raises(ValueError, match="buckets must be"):
        lsh_attention(q, q, ids(1)[..., :5], COUNT)
    with pytest.raises(ValueError, match="pass k=None"):
        LSH().attend(q, q, q)
    with pytest.raises(ValueError, match="rounds is 0"):
        LSH(rounds=0)
    with pytest.raises(ValueError, match=r"pass a jax\.random\.key"):
        LSH(dropout=0.1, chunk=C).attend(q, None, q, train=True)
