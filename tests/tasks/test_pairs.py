"""Batches of sentence pairs: each pair once, in the tightest bucket, resumed exactly, shared by readers."""

import itertools
import json
import logging

import numpy as np
import pytest

import tasks
from tasks import pairtokens, subwords
from tasks.bitexts import Bitext, Part
from tasks.buckets import lengths_between, plan
from tasks.metrics import NATS_PER_TOKEN
from tasks.pairs import PairTask
from tasks.spans import of_lines
from tasks.task import SPLITS

IDS = 340
WORDS = ["haus", "garten", "kind", "weg", "alt", "neu", "rot", "groß", "über", "house", "child", "road", "lake", "big"]
SIZES = {"train": 60, "validation": 9, "test": 7}


def sentences(split):
    """(source, target) pairs of 1 to 29 words, all different."""
    draw = np.random.default_rng(len(split))
    pairs = []
    for number in range(SIZES[split]):
        least, below = ((1, 5), (6, 12), (12, 30))[number % 3]
        sides = [" ".join(draw.choice(WORDS, draw.integers(least, below))) for _ in range(2)]
        pairs.append((f"{number} {sides[0]}", f"{sides[1]} {number}"))
    return pairs


PAIRS = {split: sentences(split) for split in SPLITS}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    subwords.train([side for pairs in PAIRS.values() for pair in pairs for side in pair], IDS, path, kind="bpe")
    return subwords.load(str(path))


def made(place, words, name="pairs_of_a_test", **changed):
    bitexts = []
    for split in SPLITS:
        files = [place / f"{split}.{side}" for side in ("en", "de")]
        for file, side in zip(files, zip(*changed.get(split, PAIRS[split]), strict=True), strict=True):
            file.write_text("".join(f"{sentence}\n" for sentence in side))
        bitexts.append(Bitext((Part(*map(of_lines, files), "lines"),)))
    return PairTask(name, 32, IDS, (NATS_PER_TOKEN,), 8, 64, tuple(bitexts), words)


@pytest.fixture(scope="module")
def usual(tmp_path_factory, words):
    return made(tmp_path_factory.mktemp("lines"), words)


def rows_of(batch):
    """(source ids, target ids) of the rows that are no padding, checked against what else the batch says."""
    found = []
    for row in range(len(batch["decoder_target_tokens"])):
        source, target = (batch[name][row] for name in ("encoder_input_tokens", "decoder_target_tokens"))
        lengths = [int(np.sum(side != 0)) for side in (source, target)]  # ids are never 0 but in padding
        marks = [[1] * length + [0] * (len(source) - length) for length in lengths]
        assert batch["encoder_segment_ids"][row].tolist() == marks[0]
        assert batch["decoder_segment_ids"][row].tolist() == batch["decoder_loss_weights"][row].tolist() == marks[1]
        tokens = target[: lengths[1]].tolist()
        shifted = [0, *tokens[:-1]] if tokens else []
        assert batch["decoder_input_tokens"][row].tolist() == shifted + [0] * (len(target) - len(tokens))
        if lengths[0]:
            assert source[lengths[0] - 1] == tokens[-1] == subwords.EOS
            found.append((tuple(source[: lengths[0]].tolist()), tuple(tokens)))
        else:
            assert not tokens
    return found


def expected(task, split, longest):
    """The pairs' ids, sentence by sentence."""
    encoded = [tuple((*task.words().encode([side])[0], 1) for side in pair) for pair in PAIRS[split]]
    return [pair for pair in encoded if max(map(len, pair)) <= longest]


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("batch_size", [1, 2, 50])
def test_evaluation_gives_every_pair_once_in_an_order_of_its_own(usual, split, batch_size):
    feed = usual.feed(split, batch_size)
    batches = list(feed)
    shapes = [batch["decoder_target_tokens"].shape for batch in batches]
    assert set(shapes) <= {(4 * batch_size, 8), (2 * batch_size, 16), (batch_size, 32), (batch_size, 64)}
    pairs = [pair for batch in batches for pair in rows_of(batch)]
    assert sorted(pairs) == sorted(expected(usual, split, 64))
    assert pairs == [pair for batch in usual.feed(split, batch_size, seed=9) for pair in rows_of(batch)]
    assert next(feed, None) is None


def test_every_pass_of_training_gives_every_pair_once_in_another_order(usual):
    feed = usual.feed("train", 2, seed=3)
    whole = sorted(expected(usual, "train", 32))
    assert 0 < len(whole) < 60  # some are too long
    passes = []
    for number in range(3):
        pairs = []
        while len(pairs) < len(whole):
            pairs += rows_of(next(feed))
        assert sorted(pairs) == whole
        assert json.loads(feed.state())["pass"] == number
        passes.append(pairs)
    assert passes[0] != passes[1] != passes[2]
    other = usual.feed("train", 2, seed=4)
    assert [rows_of(next(other)) for _ in range(3)] != [rows_of(next(usual.feed("train", 2, seed=3))) for _ in range(3)]


def test_batches_have_equally_many_padded_tokens_and_the_tightest_bucket(usual):
    feed = usual.feed("train", 2)
    shapes = set()
    for _ in range(40):
        batch = next(feed)
        assert batch["decoder_target_tokens"].size == batch["encoder_input_tokens"].size == 64
        shapes.add(batch["decoder_target_tokens"].shape)
    assert shapes == {(8, 8), (4, 16), (2, 32)}


def test_a_plan_puts_examples_into_the_shortest_bucket_and_hands_on_what_is_left():
    lengths = np.array([3, 8, 9, 4, 16, 5, 17, 2, 1])
    assert lengths_between(8, 32) == [8, 16, 32] and lengths_between(8, 8) == [8]
    found = [(bucket, part.tolist()) for bucket, part in plan(lengths, [8, 16, 32], [4, 2, 1], None)]
    # Of length <= 8: 0 1 3 5 7 8, a batch of four, and 7 8 left for the next bucket, which has 2 and 4 of its own.
    assert found == [(0, [0, 1, 3, 5]), (1, [7, 8]), (1, [2, 4]), (2, [6])]
    # No example needs the longest bucket, so what is left stays below it.
    assert [(b, p.tolist()) for b, p in plan(lengths[:5], [8, 16, 32], [4, 3, 1], None)] == [
        (1, [0, 1, 3]),
        (1, [2, 4]),
    ]
    for seed in range(5):
        shuffled = plan(np.tile(lengths, 9), [8, 16, 32], [4, 2, 1], (seed, 0))
        assert sorted(np.concatenate([part for _, part in shuffled])) == list(range(81))
        assert all(np.tile(lengths, 9)[part].max() <= [8, 16, 32][bucket] for bucket, part in shuffled)
        assert [bucket for bucket, _ in shuffled] != sorted(bucket for bucket, _ in shuffled)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_resuming_is_exact_at_every_batch(usual, split):
    feed = usual.feed(split, 1, seed=2)
    states, batches = [feed.state()], []
    for batch in itertools.islice(feed, 90):
        batches.append(batch)
        states.append(feed.state())
    assert split != "train" or json.loads(states[-1])["pass"] >= 1
    for step in range(0, len(batches) + 1, 7):
        resumed = usual.feed(split, 1, seed=2)
        next(resumed)
        resumed.restore(states[step])
        assert resumed.state() == states[step]
        np.testing.assert_equal(list(itertools.islice(resumed, 3)), batches[step : step + 3] or [])


@pytest.mark.parametrize("split", ["train", "test"])
def test_readers_share_each_batch(usual, split):
    whole = list(itertools.islice(usual.feed(split, 6, seed=1), 20))
    feeds = [usual.feed(split, 2, seed=1, shard=(reader, 3)) for reader in range(3)]
    parts = [list(itertools.islice(feed, 20)) for feed in feeds]
    assert len({len(part) for part in parts}) == 1 and len(parts[0]) == len(whole)
    for one, batch in zip(zip(*parts, strict=True), whole, strict=True):
        assert len({part["decoder_target_tokens"].shape for part in one}) == 1
        assert sorted(pair for part in one for pair in rows_of(part)) == sorted(rows_of(batch))
    assert json.loads(feeds[0].state()) == json.loads(usual.feed(split, 6, seed=1).state()) | {
        key: json.loads(feeds[0].state())[key] for key in ("pass", "batch")
    }


def test_states_of_other_feeds_are_refused(usual):
    feed = usual.feed("train", 2)
    for other in (usual.feed("test", 2), usual.feed("train", 2, seed=1), usual.feed("train", 1)):
        with pytest.raises(tasks.DataError, match="belongs to another feed"):
            feed.restore(other.state())
    for broken in ("", "[]", "{}", None, '{"pass": -1, "batch": 0}'):
        with pytest.raises(tasks.DataError, match="not a feed's state"):
            feed.restore(broken)


def test_a_specimen_is_what_a_batch_of_full_length_looks_like(usual):
    feed = usual.feed("train", 3)
    batch = next(one for one in feed if one["decoder_target_tokens"].shape[1] == 32)
    specimen = usual.specimen(3)
    assert list(specimen) == list(batch)
    for name, array in specimen.items():
        assert (array.shape, array.dtype) == (batch[name].shape, batch[name].dtype) and not array.any()


def test_what_training_cannot_use_is_left_out_and_counted(tmp_path, words, caplog):
    bad = [("", "x"), ("y", " \u2003"), ("a\0b", "c"), ("haus " * 80, "weg"), *PAIRS["validation"]]
    task = made(tmp_path, words, train=bad, test=bad)
    with caplog.at_level(logging.WARNING):
        feed = task.feed("train", 50)
    (line,) = (record.getMessage() for record in caplog.records)
    dropped = len(bad) - len(expected(task, "validation", 32))
    assert f"{dropped} of 13 pairs are left out: 2 empty on one side, 1 with a NUL character, " in line
    seen = set()
    for _ in range(9):
        seen |= set(rows_of(next(feed)))
    assert seen == set(expected(task, "validation", 32))
    # An evaluation leaves out only what is too long, and decoding not even that.
    assert sum(len(rows_of(batch)) for batch in task.feed("test", 2)) == 12
    assert len(task.references("test")) == 13


def test_tokens_of_large_texts_are_kept(tmp_path, words, monkeypatch, caplog):
    monkeypatch.setattr(pairtokens, "KEPT_FROM", 10)
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "texts"
    place.mkdir()
    first = [next(made(place, words).feed("train", 4)) for _ in range(2)]
    (folder,) = (tmp_path / "cache" / "pairs").iterdir()  # validation and test are too small to be kept
    monkeypatch.setattr(pairtokens, "tokenise", None)
    pairtokens.tokenised.cache_clear()
    caplog.clear()
    task = made(place, words)
    np.testing.assert_equal([next(task.feed("train", 4)) for _ in range(2)], first)
    assert "pairs are left out" in caplog.text  # said although they were counted by another process
    (folder / "rows.npy").write_bytes(b"")
    pairtokens.tokenised.cache_clear()
    with pytest.raises(tasks.DataError, match="cannot be read .* remove the folder"):
        task.feed("train", 4)


def test_tokens_that_cannot_be_kept_are_made_again(tmp_path, words, monkeypatch, caplog):
    monkeypatch.setattr(pairtokens, "KEPT_FROM", 10)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "file"))
    assert rows_of(next(made(tmp_path, words).feed("train", 4)))
    assert "they will be made again next time" in caplog.text


def test_no_usable_pair(tmp_path, words):
    task = made(tmp_path, words, train=[("", "x")])
    with pytest.raises(tasks.DataError, match="not one of 1 pairs can be used .1 empty on one side"):
        task.feed("train", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "trian"}, "split 'trian' is none of .*did you mean 'train'"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1"),
        ({"shard": (2, 2)}, "shard must be a whole number from 0 to 1, got 2"),
        ({"pipeline": "seqio"}, "pipeline must be 'auto' or 'numpy', got 'seqio'"),
    ],
)
def test_wrong_arguments(usual, arguments, message):
    with pytest.raises(tasks.DataError, match=message):
        usual.feed(**{"split": "train", "batch_size": 2, **arguments})


def test_the_registered_seqio_task_has_the_feeds_examples(usual):
    seqio = pytest.importorskip("seqio")
    from tasks.pairs_seqio import converter_class

    assert usual.register() is usual.register() is seqio.get_mixture_or_task(usual.name)
    for split, longest in (("train", 32), ("test", 64)):
        lengths = {"inputs": longest, "targets": longest}
        dataset = seqio.get_dataset(usual.name, lengths, converter_class()(), dataset_split=split, shuffle=False)
        batches = list(dataset.batch(7).as_numpy_iterator())
        pairs = [pair for batch in batches for pair in rows_of(batch)]
        assert pairs == expected(usual, split, longest)
        assert {name: array.dtype for name, array in batches[0].items()} == {
            name: array.dtype for name, array in usual.specimen().items()
        }
    assert [fn.__name__ for fn in usual.register().predict_metric_fns] == ["bleu_metrics"]


def test_another_task_of_the_same_name_is_refused(usual, tmp_path, words):
    pytest.importorskip("seqio")
    usual.register()
    with pytest.raises(tasks.DataError, match="already holds another task"):
        made(tmp_path, words, train=PAIRS["test"]).register()
