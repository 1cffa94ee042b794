"""The duplication task: `0 w 0 w`, uniform symbols, fresh and repeatable."""

import numpy as np
import pytest

import tasks
from tasks import randomness


def philox(seed: int, stream: int, index: int, count: int) -> list[int]:
    """Philox4x64-10 (Salmon et al. 2011) in plain integers: counter (block + 1, 0, index, 0), key (seed, stream)."""
    mask, out = 2**64 - 1, []
    for block in range(1, 1 + -(-count // 4)):
        a, b, c, d = block, 0, index, 0
        k0, k1 = seed, stream
        for _ in range(10):
            left, right = a * 0xD2E7470EE14C6C93, c * 0xCA5A826395121157
            a, b, c, d = (right >> 64) ^ b ^ k0, right & mask, (left >> 64) ^ d ^ k1, left & mask
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
        out += [a, b, c, d]
    return out[:count]


def test_draws_follow_the_published_generator():
    for seed, stream, index in [(0, "train", 0), (3, "test", 12345), (2**63, "order", 2**40)]:
        expected = philox(seed, randomness.STREAMS[stream], index, 7)
        assert randomness.draws(seed, stream, index, 7).tolist() == expected


def test_spelled_out_example():
    example = tasks.duplication(length=12, symbols=3).source.example("train", 9, seed=5)
    word = [1 + bits % 3 for bits in philox(5, 0, 9, 5)]
    assert example["targets"].tolist() == [0, *word, 0, *word] == [0, 3, 1, 3, 3, 2, 0, 3, 1, 3, 3, 2]
    assert example["weights"].tolist() == [0] * 7 + [1] * 5


def test_spelled_out_batch():
    task = tasks.duplication(length=8, symbols=5)
    batch = next(task.feed("train", batch_size=2, seed=1, pipeline="numpy"))
    first, second = ([1 + bits % 5 for bits in philox(1, 0, index, 3)] for index in (0, 1))
    assert batch["decoder_target_tokens"].tolist() == [[0, *first, 0, *first], [0, *second, 0, *second]]
    assert batch["decoder_input_tokens"].tolist() == [[0, 0, *first, 0, *first[:2]], [0, 0, *second, 0, *second[:2]]]
    assert batch["decoder_loss_weights"].tolist() == [[0, 0, 0, 0, 0, 1, 1, 1]] * 2
    assert batch["decoder_segment_ids"].tolist() == [[1] * 8] * 2
    assert [array.dtype.name for array in batch.values()] == ["int32", "int32", "float32", "int32"]


def test_the_papers_setting():
    task = tasks.duplication()
    batch = next(task.feed("train", batch_size=64, pipeline="numpy"))
    tokens, weights = batch["decoder_target_tokens"], batch["decoder_loss_weights"]
    assert tokens.shape == (64, 1024) and task.vocabulary == 128 and task.length == 1024
    assert (weights.sum(1) == 511).all() and (weights[:, :513] == 0).all()
    assert (tokens[:, :512] == tokens[:, 512:]).all() and (tokens[:, [0, 512]] == 0).all()
    assert [metric.name for metric in task.metrics] == ["accuracy", "nats_per_token"]


def test_symbols_are_uniform_and_the_last_one_occurs():
    source = tasks.duplication().source
    words = np.concatenate([source.example("train", index, seed=0)["targets"][1:512] for index in range(400)])
    counts = np.bincount(words, minlength=128)
    assert counts.size == 128 and counts[0] == 0
    expected = words.size / 127  # about 1609; chi-square over 126 degrees of freedom is 126 +- 15.9
    assert abs(((counts[1:] - expected) ** 2 / expected).sum() - 126) < 5 * 15.9
    assert counts[127] > expected * 0.85


def test_an_example_is_a_pure_function_of_split_seed_and_index():
    source = tasks.duplication(length=64).source
    once = {
        (split, seed, index): source.example(split, index, seed)["targets"].tobytes()
        for split in ("train", "validation", "test")
        for seed in (0, 1)
        for index in (0, 1, 10**9)
    }
    again = {key: tasks.duplication(length=64).source.example(key[0], key[2], key[1]) for key in reversed(once)}
    assert all(again[key]["targets"].tobytes() == text for key, text in once.items())
    train = {text for key, text in once.items() if key[0] == "train"}
    assert len(train) == 6, "every seed and index has its own training example"


def test_the_splits_share_no_example():
    task = tasks.duplication(length=64, examples=200)
    rows = {}
    for split in ("validation", "test"):
        rows[split] = {
            row.tobytes() for b in task.feed(split, 50, pipeline="numpy") for row in b["decoder_target_tokens"]
        }
        assert len(rows[split]) == 200
    feed = task.feed("train", 50, seed=0, pipeline="numpy")
    rows["train"] = {row.tobytes() for _ in range(20) for row in next(feed)["decoder_target_tokens"]}
    assert len(rows["train"] | rows["validation"] | rows["test"]) == 1400


def test_fixed_sets_do_not_depend_on_the_seed():
    task = tasks.duplication(length=16, examples=5)
    for split in ("validation", "test"):
        one, other = (list(task.feed(split, 2, seed=seed, pipeline="numpy")) for seed in (0, 99))
        np.testing.assert_equal(one, other)


def test_names_and_fingerprints_tell_settings_apart():
    settings = [{}, {"length": 64}, {"symbols": 12}, {"examples": 9}, {"length": 64, "symbols": 12}]
    built = [tasks.duplication(**setting) for setting in settings]
    assert [task.name for task in built] == [
        "duplication",
        "duplication.length64",
        "duplication.symbols12",
        "duplication.examples9",
        "duplication.length64.symbols12",
    ]
    assert len({task.fingerprint() for task in built}) == len(built)
    # Pinned: if this changes, old records and checkpoints no longer match. Raise task.FORMAT when examples change.
    assert tasks.duplication().fingerprint() == "73974c71c2d3ac30"
    assert tasks.duplication() == tasks.duplication() and hash(tasks.duplication()) == hash(tasks.duplication())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"length": 1023}, "length must be even.*1023"),
        ({"length": 2}, "length must be a whole number from 4 .*got 2"),
        ({"length": 64.0}, "length must be a whole number.*got 64.0"),
        ({"length": True}, "length must be a whole number.*got True"),
        ({"symbols": 0}, "symbols must be a whole number from 1 .*got 0"),
        ({"symbols": 2**31}, "symbols must be a whole number.*got 2147483648"),
        ({"examples": 0}, "examples must be a whole number from 1 .*got 0"),
    ],
)
def test_wrong_settings_are_one_clear_line(setting, message):
    with pytest.raises(tasks.DataError, match=message) as error:
        tasks.duplication(**setting)
    assert "\n" not in str(error.value)


def test_smallest_task():
    example = tasks.duplication(length=4, symbols=1).source.example("train", 0, 0)
    assert example["targets"].tolist() == [0, 1, 0, 1] and example["weights"].tolist() == [0, 0, 0, 1]
