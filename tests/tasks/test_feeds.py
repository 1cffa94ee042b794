"""Feeds: the same batches by both pipelines, exact resuming, every example once, disjoint readers."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

import tasks
from tasks import randomness
from tasks.feeds import FEATURES, check_ids
from tasks.metrics import NATS_PER_TOKEN

LENGTH = 6


@dataclasses.dataclass(frozen=True)
class Rows:
    """Seven training rows and five others of 1 to 6 tokens; row n of a split begins with its number."""

    kind: str = "rows"

    def size(self, split):
        return 7 if split == "train" else 5

    def example(self, split, index, seed):
        row = randomness.place(self.size(split), index, seed)
        targets = np.arange(row, row + 1 + row % LENGTH, dtype=np.int32)
        return {"targets": targets, "weights": (targets % 2).astype(np.float32)}

    def identity(self):
        return {"kind": self.kind}


ROWS = tasks.Task("rows_of_a_test", LENGTH, 20, (NATS_PER_TOKEN,), Rows())
FRESH = tasks.duplication(length=8, symbols=9, examples=5)


@pytest.fixture(params=["numpy", "seqio"])
def pipeline(request):
    if request.param == "seqio":
        pytest.importorskip("seqio")
    return request.param


def expected(task, split, indices, rows, seed):
    """The batch of these positions, written out with lists."""
    batch = {name: [] for name in FEATURES}
    for index in indices:
        example = task.source.example(split, index, seed if split == "train" else None)
        tokens, weights = example["targets"].tolist(), example["weights"].tolist()
        padding = [0] * (task.length - len(tokens))
        batch["decoder_target_tokens"].append(tokens + padding)
        batch["decoder_input_tokens"].append([0, *tokens[:-1], *padding])
        batch["decoder_loss_weights"].append(weights + padding)
        batch["decoder_segment_ids"].append([1] * len(tokens) + padding)
    for name, kind in FEATURES.items():
        batch[name] += [[0] * task.length] * (rows - len(indices))
        batch[name] = np.array(batch[name], kind)
    return batch


def same(batch, other):
    assert sorted(batch) == sorted(other)
    for name, array in batch.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
        assert array.dtype == other[name].dtype, name


@pytest.mark.parametrize("task", [ROWS, FRESH], ids=["finite", "endless"])
def test_training_batches_are_the_sources_examples_in_order(pipeline, task):
    feed = task.feed("train", 3, seed=4, pipeline=pipeline)
    for step in range(8):  # over three borders between passes, each inside a batch
        same(next(feed), expected(task, "train", range(3 * step, 3 * step + 3), 3, seed=4))


@pytest.mark.parametrize("task", [ROWS, FRESH], ids=["finite", "endless"])
def test_fixed_splits_give_every_example_once_and_fill_the_last_batch(pipeline, task):
    for split in ("validation", "test"):
        batches = list(task.feed(split, 3, pipeline=pipeline))
        assert len(batches) == 2
        same(batches[0], expected(task, split, [0, 1, 2], 3, None))
        same(batches[1], expected(task, split, [3, 4], 3, None))
        assert not any(array[2].any() for array in batches[1].values())


def test_every_pass_over_finite_data_is_a_permutation_of_its_own():
    feed = ROWS.feed("train", 1, seed=0, pipeline="numpy")
    passes = [[int(next(feed)["decoder_target_tokens"][0, 0]) for _ in range(7)] for _ in range(6)]
    assert all(sorted(one) == list(range(7)) for one in passes)
    assert len({tuple(one) for one in passes}) > 3
    assert passes[0] == randomness.permutation(7, 0, 0).tolist()
    other = ROWS.feed("train", 7, seed=1, pipeline="numpy")
    assert next(other)["decoder_target_tokens"][:, 0].tolist() != passes[0]


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("task", [ROWS, FRESH], ids=["finite", "endless"])
def test_resuming_is_exact_at_every_batch(pipeline, task, split):
    def take(feed, count):
        return list(itertools.islice(feed, count))

    feed = task.feed(split, 2, seed=3, pipeline=pipeline)
    states, batches = [feed.state()], []
    for batch in itertools.islice(feed, 9):
        batches.append(batch)
        states.append(feed.state())
    assert len(batches) == (9 if split == "train" else 3)
    for step in (0, 1, 2, 3, 8, 9):
        if step < len(states):
            resumed = task.feed(split, 2, seed=3, pipeline=pipeline)
            next(resumed)  # a feed in use can be set back as well
            resumed.restore(states[step])
            assert resumed.state() == states[step]
            rest = take(resumed, len(batches) - step)
            np.testing.assert_equal(rest, batches[step:])


def test_state_is_small_json_and_the_same_for_both_pipelines(pipeline):
    feed = ROWS.feed("train", 4, seed=1, pipeline=pipeline)
    next(feed)
    state = json.loads(feed.state())
    assert state == {"task": "rows_of_a_test", "split": "train", "seed": 1, "position": 4}


def test_a_far_position_costs_nothing(pipeline):
    feed = FRESH.feed("train", 2, seed=0, pipeline=pipeline)
    feed.restore(feed.state().replace('"position": 0', f'"position": {2 * 10**15}'))
    same(next(feed), expected(FRESH, "train", [2 * 10**15, 2 * 10**15 + 1], 2, seed=0))


@pytest.mark.parametrize("split", ["train", "test"])
def test_readers_share_the_examples_without_overlap(pipeline, split):
    readers = [ROWS.feed(split, 2, seed=5, shard=(reader, 3), pipeline=pipeline) for reader in range(3)]
    for step in range(4 if split == "train" else 1):
        for reader, feed in enumerate(readers):
            indices = [6 * step + reader, 6 * step + reader + 3]
            if split == "test":  # five examples: the third reader has only one, and as many batches as the others
                indices = [index for index in indices if index < 5]
            same(next(feed), expected(ROWS, split, indices, 2, seed=5))
    if split == "test":
        assert [next(feed, None) for feed in readers] == [None] * 3


def test_a_reader_without_examples_gives_empty_batches(pipeline):
    feeds = [ROWS.feed("test", 1, shard=(reader, 4), pipeline=pipeline) for reader in range(4)]
    counts = [[int(batch["decoder_segment_ids"].any()) for batch in feed] for feed in feeds]
    assert counts == [[1, 1], [1, 0], [1, 0], [1, 0]]
    resumed = ROWS.feed("test", 1, shard=(3, 4), pipeline=pipeline)
    next(resumed)
    resumed.restore(resumed.state())
    assert not next(resumed)["decoder_segment_ids"].any() and next(resumed, None) is None


def test_states_of_other_feeds_are_refused():
    feed = ROWS.feed("train", 2, seed=0, pipeline="numpy")
    for other in (FRESH.feed("train", 2), ROWS.feed("test", 2), ROWS.feed("train", 2, seed=1)):
        with pytest.raises(tasks.DataError, match="belongs to another feed"):
            feed.restore(other.state())
    for broken in ("", "[]", "{}", "null", '{"position": -1}', '{"position": "x"}', None):
        with pytest.raises(tasks.DataError, match="not a feed's state"):
            feed.restore(broken)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "trian"}, "split 'trian' is none of .*did you mean 'train'"),
        ({"split": None}, "split None is none of"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"shard": (2, 2)}, "shard must be a whole number from 0 to 1, got 2"),
        ({"pipeline": "tf"}, "pipeline must be 'auto', 'seqio' or 'numpy', got 'tf'"),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments, message):
    with pytest.raises(tasks.DataError, match=message):
        FRESH.feed(**{"split": "train", "batch_size": 2, **arguments})


@pytest.mark.parametrize("wrong", [9, -1])
def test_ids_outside_the_vocabulary_are_caught(pipeline, wrong):
    class Broken(Rows):
        def example(self, split, index, seed):
            return {"targets": np.array([1, wrong], np.int32), "weights": np.ones(2, np.float32)}

    task = tasks.Task(f"broken_ids_{wrong % 100}", LENGTH, 9, (NATS_PER_TOKEN,), Broken(f"broken {wrong}"))
    with pytest.raises(tasks.DataError, match=rf"token id {wrong} in the train batch at example 0.* 9 ids \(0 to 8\)"):
        next(task.feed("train", 2, pipeline=pipeline))


def test_the_vocabularys_last_id_is_fine():
    batch = {"decoder_target_tokens": np.array([[0, 19]])}
    check_ids(batch, ROWS, "train", 0)
