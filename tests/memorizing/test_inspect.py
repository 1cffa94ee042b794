"""What is said about a document's retrievals, against a search by hand over the keys that the model stored."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from memorizing import Model

L, T = 8, 45
MODEL = Model(
    11, layers=2, width=16, hidden=24, heads=2, head_width=4, memory=16, segment=L, memory_layers=(2,), neighbours=4,
    cache=L, memory_dtype="float32",
)  # fmt: skip


@pytest.fixture(scope="module")
def params():
    params = MODEL.init(jax.random.key(0))
    params["layers"][1]["gate"] = params["layers"][1]["gate"] + np.array([[-1.0, 2.0]])
    return params


def segments():
    tokens = np.random.default_rng(0).integers(1, 11, T).astype(np.int32)
    for at in range(0, T, L):
        batch = {name: np.zeros((1, L), np.int32) for name in ("inputs", "targets", "segment_ids")}
        size = min(L, T - at)
        batch["targets"][0, :size] = tokens[at : at + size]
        batch["inputs"][0, :size] = np.append(0, tokens)[at : at + size]
        batch["segment_ids"][0, :size] = 1
        yield {
            "decoder_input_tokens": batch["inputs"],
            "decoder_target_tokens": batch["targets"],
            "decoder_segment_ids": batch["segment_ids"],
            "decoder_loss_weights": batch["segment_ids"].astype(np.float32),
            "document_start": np.array([at == 0], np.int32),
        }


def test_retrieved_positions_are_those_of_the_best_keys(params):
    """The pairs of a segment wait in the state: their keys tell at which position each was computed."""
    found = list(MODEL.look_inside(params, segments()))
    assert [len(part.nats) for part in found] == [8, 8, 8, 8, 8, 5]
    apply, state, keys, at = jax.jit(partial(MODEL.apply, inspect=True)), MODEL.start(1), np.zeros((2, 0, 4)), 0
    for batch, part in zip(segments(), found, strict=True):
        scores, state, (look,) = apply(params, batch, state)
        size = len(part.nats)
        np.testing.assert_allclose(part.nats, scores["nats"][0, :size], atol=1e-6)
        np.testing.assert_allclose(part.share[0], np.repeat([[0.2689414], [0.8807971]], size, axis=1), atol=1e-5)
        oldest = max(0, at - MODEL.memory)
        assert part.source.shape == part.weight.shape == (1, 2, size, 4)
        if not at:
            assert (part.source == -1).all()
            assert (part.weight == 0).all()
        else:
            assert part.source.min() >= oldest
            assert part.source.max() < at
            np.testing.assert_allclose(part.weight.sum(-1), 1, atol=1e-5)
            # The key at the position named is the key in the entry retrieved.
            ring = np.asarray(state.rings[0].keys)[0]
            for h in range(2):
                np.testing.assert_allclose(keys[h][part.source[0, h]], ring[h][look.index[0, h, :size]], atol=1e-6)
        strongest, weight = part.strongest(1)
        np.testing.assert_array_equal(weight[..., 0], part.weight.max(-1))
        picked = part.weight.argmax(-1)[..., None]
        np.testing.assert_array_equal(strongest, np.take_along_axis(part.source, picked, axis=-1))
        keys = np.concatenate([keys, np.asarray(state.waiting[0][0])[0, :, :size]], axis=1)
        at += size


def test_other_sizes_of_memory_differ_only_where_they_can(params):
    nats = {}
    for memory in (0, 8, 16):
        model, same = MODEL.with_memory(params, memory)
        assert model == dataclasses.replace(MODEL, memory=memory)
        nats[memory] = np.concatenate([part.nats for part in model.look_inside(same, segments())])
    np.testing.assert_allclose(nats[8][:16], nats[16][:16], atol=1e-6)
    assert np.abs(nats[8][16:] - nats[16][16:]).max() > 1e-3
    assert np.abs(nats[0] - nats[16]).max() > 1e-3
    with pytest.raises(ValueError, match="multiple of the segment"):
        MODEL.with_memory(params, 12)
