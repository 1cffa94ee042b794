"""Documents in order: batches written out by hand, every token once for any batch size, exact resuming."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

import tasks
from tasks import logs, randomness
from tasks.metrics import BITS_PER_BYTE_OF_TEXT, NATS_PER_TOKEN

LENGTH = 4


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Document d of a split is 10 d + 1, 10 d + 2, ...; `sizes` are the lengths."""

    sizes: tuple[int, ...] = (5, 1, 4, 9, 3)

    def size(self, split):
        return len(self.sizes)

    def lengths(self, split):
        return np.array(self.sizes)

    def tokens(self, split, document, start, stop):
        return (10 * document + 1 + np.arange(self.sizes[document], dtype=np.int32))[start:stop]

    def weights(self, split, document, start, stop):
        return np.ones(self.sizes[document], np.float32)[start:stop]

    def example(self, split, index, seed):
        document = randomness.place(len(self.sizes), index, seed)
        targets = self.tokens(split, document, 0, None)
        return {"targets": targets, "weights": np.ones(len(targets), np.float32)}

    def bytes_per_token(self, split):
        return 3.5

    def text(self, ids):
        return str(ids)

    def identity(self):
        return {"kind": "numbers", "sizes": list(self.sizes)}


def task(predict_first=True, sizes=Numbers.sizes):
    name = f"numbers_{predict_first}_{len(sizes)}"
    return tasks.DocumentTask(name, LENGTH, 200, (NATS_PER_TOKEN,), Numbers(sizes), predict_first)


def batches(feed, count=None):
    return list(itertools.islice(feed, count))


def same(found, wanted):
    np.testing.assert_equal(found, wanted)
    assert {name: array.dtype for name, array in found.items()} == {name: array.dtype for name, array in wanted.items()}


def test_batches_by_hand():
    first, second, third, fourth, fifth = task().feed("test", 2)
    assert first["decoder_target_tokens"].tolist() == [[1, 2, 3, 4], [11, 0, 0, 0]]
    assert first["decoder_input_tokens"].tolist() == [[0, 1, 2, 3], [0, 0, 0, 0]]
    assert first["decoder_loss_weights"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert first["decoder_segment_ids"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert first["document_start"].tolist() == [1, 1]
    # Slot 0 goes on: its first input is the last token of the segment before. Slot 1 begins document 2.
    assert second["decoder_target_tokens"].tolist() == [[5, 0, 0, 0], [21, 22, 23, 24]]
    assert second["decoder_input_tokens"].tolist() == [[4, 0, 0, 0], [0, 21, 22, 23]]
    assert second["document_start"].tolist() == [0, 1]
    assert third["decoder_target_tokens"].tolist() == [[31, 32, 33, 34], [41, 42, 43, 0]]
    assert third["document_start"].tolist() == [1, 1]
    # Nothing is left for slot 1: an empty row, which starts nothing.
    assert fourth["decoder_target_tokens"].tolist() == [[35, 36, 37, 38], [0, 0, 0, 0]]
    assert fourth["document_start"].tolist() == [0, 0]
    assert fifth["decoder_target_tokens"].tolist() == [[39, 0, 0, 0], [0, 0, 0, 0]]


def test_the_authors_reading_by_hand():
    first, second, third = task(False, (5, 1)).feed("test", 1)
    assert first["decoder_input_tokens"].tolist() == [[1, 2, 3, 4]]
    assert first["decoder_target_tokens"].tolist() == [[2, 3, 4, 0]]
    assert first["decoder_loss_weights"].tolist() == [[1, 1, 1, 0]]
    assert first["decoder_segment_ids"].tolist() == [[1, 1, 1, 1]]
    assert second["decoder_input_tokens"].tolist() == [[5, 0, 0, 0]]
    assert second["decoder_loss_weights"].tolist() == [[0, 0, 0, 0]]
    assert second["decoder_segment_ids"].tolist() == [[1, 0, 0, 0]]
    assert third["decoder_segment_ids"].tolist() == [[1, 0, 0, 0]] and third["document_start"].tolist() == [1]


def rows(feed, count=None):
    """(slot, start flag, counted target tokens with their inputs) of each row that holds something, in order."""
    for batch in itertools.islice(feed, count):
        for slot, weights in enumerate(batch["decoder_loss_weights"]):
            read = batch["decoder_segment_ids"][slot] == 1
            if read.any():
                pairs = [batch[name][slot][read].tolist() for name in ("decoder_target_tokens", "decoder_input_tokens")]
                yield slot, int(batch["document_start"][slot]), *pairs
            assert (weights == read).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_every_token_once_in_order_for_any_batch_size(split, size):
    documents, reading = {}, {}
    for slot, start, targets, inputs in rows(task().feed(split, size, seed=9)):
        if start:
            reading[slot] = targets[0] // 10
            assert reading[slot] not in documents
            documents[reading[slot]] = []
        text = documents[reading[slot]]
        assert inputs == [text[-1] if text else 0, *targets[:-1]]
        text.extend(targets)
    assert documents == {d: [10 * d + 1 + i for i in range(n)] for d, n in enumerate(Numbers.sizes)}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_training_reads_pass_after_pass_each_in_its_own_order(size):
    starts = [targets[0] // 10 for _, start, targets, _ in rows(task().feed("train", size, seed=3), 60) if start]
    passes = [randomness.permutation(5, 3, epoch).tolist() for epoch in range(3)]
    assert starts[:15] == [document for one in passes for document in one]
    assert len({tuple(one) for one in passes}) > 1


def test_a_seed_is_an_order():
    first = {tuple(next(task().feed("train", 5, seed=seed))["decoder_target_tokens"][:, 0]) for seed in range(4)}
    assert len(first) > 1


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("readers", [2, 3, 6])
def test_readers_together_give_the_batch_of_one(split, readers):
    whole = batches(task().feed(split, 6, seed=2), 9)
    parts = [batches(task().feed(split, 6 // readers, 2, (one, readers)), 9) for one in range(readers)]
    assert {len(part) for part in parts} == {len(whole)}
    for batch, *shares in zip(whole, *parts, strict=True):
        same({name: np.concatenate([share[name] for share in shares]) for name in batch}, batch)


@pytest.mark.parametrize("predict_first", [True, False])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_resuming_is_exact_at_every_step(split, predict_first):
    feed = task(predict_first).feed(split, 2, seed=1)
    states, seen = [feed.state()], []
    for batch in itertools.islice(feed, 14):
        seen.append(batch)
        states.append(feed.state())
    assert len(seen) == (14 if split == "train" else 5)
    for step, state in enumerate(states):
        resumed = task(predict_first).feed(split, 2, seed=1)
        next(resumed)
        resumed.restore(state)
        assert resumed.state() == state
        for batch, again in zip(seen[step:], resumed, strict=False):
            same(again, batch)
    if split == "validation":
        assert next(resumed, None) is None


def test_the_same_batch_on_more_hosts_goes_on_exactly():
    one = task().feed("train", 4, seed=5)
    batches(one, 7)
    two = [task().feed("train", 2, 5, (reader, 2)) for reader in range(2)]
    for feed in two:
        feed.restore(one.state())
    for _ in range(9):
        first, second = (next(feed) for feed in two)
        same({name: np.concatenate([first[name], second[name]]) for name in first}, next(one))
    assert two[0].state() == two[1].state() == one.state()


def test_another_batch_size_begins_at_document_borders_and_says_so(caplog):
    feed = task().feed("train", 2, seed=0)
    order = [randomness.place(5, place, 0) for place in range(50)]
    unfinished = []
    while len(unfinished) < 2:  # until both slots are inside a document
        next(feed)
        unfinished = [document for document, _ in json.loads(feed.state())["slots"] if document >= 0]
    taken = json.loads(feed.state())["epoch"] * 5 + json.loads(feed.state())["next"]
    other = task().feed("train", 3, seed=0)
    other.restore(feed.state())
    assert "the saved batch has 2 rows, this one 3" in caplog.text and "2 unfinished documents" in caplog.text
    batch = next(other)
    assert batch["document_start"].tolist() == [1, 1, 1]
    assert (batch["decoder_target_tokens"][:, 0] // 10).tolist() == [*unfinished, order[taken]]
    fewer = task().feed("train", 1, seed=0)
    fewer.restore(feed.state())
    saved = json.loads(fewer.state())
    assert saved["waiting"] == unfinished
    fewer.restore(fewer.state())  # what still waits is saved as well
    assert next(fewer)["decoder_target_tokens"][0, 0] // 10 == unfinished[0]


def test_the_state_is_small_json():
    feed = task().feed("train", 2, seed=7)
    batches(feed, 1)
    state = json.loads(feed.state())
    assert list(state) == ["task", "split", "seed", "epoch", "next", "waiting", "slots"]
    assert (state["task"], state["split"], state["seed"], len(state["slots"])) == ("numbers_True_5", "train", 7, 2)


def test_states_of_other_feeds_are_refused():
    feed = task().feed("train", 2)
    for other in (task().feed("test", 2), task().feed("train", 2, seed=1), task(False).feed("train", 2)):
        with pytest.raises(tasks.DataError, match="belongs to another feed"):
            feed.restore(other.state())
    far = json.loads(feed.state()) | {"slots": [[0, 5], [1, 0]]}
    for broken in (
        "",
        "[]",
        "{}",
        None,
        json.dumps(far),
        tasks.duplication().feed("train", 2, pipeline="numpy").state(),
    ):
        with pytest.raises(tasks.DataError, match="not the state of a feed of documents"):
            feed.restore(broken)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "did you mean 'test'"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1"),
        ({"shard": (2, 2)}, "shard must be a whole number from 0 to 1, got 2"),
        ({"pipeline": "seqio"}, "documents in order come from pipeline 'numpy'"),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments, message):
    with pytest.raises(tasks.DataError, match=message):
        task().feed(**{"split": "train", "batch_size": 2, **arguments})


def test_documents_without_tokens_and_wrong_ids_are_refused():
    with pytest.raises(tasks.DataError, match="one without tokens"):
        task(sizes=(3, 0)).feed("train", 1)
    small = dataclasses.replace(task(), vocabulary=30)
    with pytest.raises(tasks.DataError, match=r"token id 34 .*30 ids"):
        batches(small.feed("test", 1))


def test_rows_that_never_read_are_told_once(caplog):
    logs.say_once.cache_clear()
    task().feed("train", 9), task().feed("test", 5)
    assert not caplog.messages
    task().feed("test", 4, 0, (0, 2))
    task().feed("test", 8)
    assert caplog.messages == ["numbers_True_5: test has 5 documents for 8 rows; the others stay empty"]


def test_a_specimen_is_a_batch_of_zeros():
    specimen, batch = task().specimen(3), next(task().feed("train", 3))
    assert {n: (a.shape, a.dtype) for n, a in specimen.items()} == {n: (a.shape, a.dtype) for n, a in batch.items()}
    assert not any(array.any() for array in specimen.values())


def test_bytes_are_added_to_the_sums():
    counted = {"nats": 1.0, "weights": 4.0}
    assert task().totals("test", counted) == counted  # no metric asks for bytes
    asking = dataclasses.replace(task(), metrics=(NATS_PER_TOKEN, BITS_PER_BYTE_OF_TEXT))
    assert asking.totals("test", counted) == {**counted, "bytes": 14.0}


@pytest.mark.parametrize("predict_first", [True, False])
def test_seqio_gives_the_same_segments(predict_first):
    pytest.importorskip("seqio")
    from tasks.registry import library
    from tasks.segments import FEATURES as NAMES
    from tasks.segments import document_converter_class

    seqio, _ = library()
    here = task(predict_first)
    assert here.register() is here.register() is seqio.get_mixture_or_task(here.name)
    for split in ("train", "test"):
        dataset = seqio.get_dataset(
            here.name,
            dict.fromkeys(NAMES, LENGTH),
            document_converter_class()(),
            dataset_split=split,
            shuffle=split == "train",
            seed=6,
        )
        found = list(dataset.batch(1).as_numpy_iterator())
        wanted = batches(here.feed(split, 1, seed=6), len(found))
        assert len(found) == 8
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
