"""Copy-reverse: pairs, batches, resuming, sentences."""

import numpy as np
import pytest

import tasks
from tasks import randomness


def test_a_pair_is_a_word_and_its_reverse():
    task = tasks.copyreverse(length=9, symbols=5)
    lengths, symbols = set(), set()
    for index in range(300):
        pair = task.source.example("train", index, seed=3)
        source, target = pair["inputs"].tolist(), pair["targets"].tolist()
        assert source[-1] == target[-1] == 1
        assert source[:-1] == target[:-1][::-1]
        lengths.add(len(source))
        symbols |= set(source[:-1])
    assert lengths == set(range(2, 10)) and symbols == set(range(2, 7))
    count, *bits = randomness.draws(3, "train", 7, 9).tolist()
    assert task.source.example("train", 7, 3)["inputs"].tolist()[:-1] == [2 + b % 5 for b in bits][: 1 + count % 8]


def test_a_batch_spelled_out():
    task = tasks.copyreverse(length=6, symbols=9, examples=3)
    first, second = task.feed("validation", batch_size=2)
    words = [task.source.example("validation", index, None)["inputs"].tolist()[:-1] for index in range(3)]
    pad = lambda ids: (ids + [0] * 6)[:6]  # noqa: E731
    for batch, row, word in ((first, 0, words[0]), (first, 1, words[1]), (second, 0, words[2])):
        assert batch["encoder_input_tokens"][row].tolist() == pad([*word, 1])
        assert batch["decoder_target_tokens"][row].tolist() == pad([*word[::-1], 1])
        assert batch["decoder_input_tokens"][row].tolist() == pad([0, *word[::-1]])
        for name in ("encoder_segment_ids", "decoder_segment_ids", "decoder_loss_weights"):
            assert batch[name][row].tolist() == pad([1] * (len(word) + 1))
    specimen = task.specimen(2)
    assert {n: (a.shape, a.dtype) for n, a in specimen.items()} == {n: (a.shape, a.dtype) for n, a in first.items()}
    assert not any(array[1].any() for array in second.values())


def test_readers_share_the_stream_and_resume():
    task = tasks.copyreverse(length=6)
    whole = task.feed("train", batch_size=4, seed=5)
    parts = [task.feed("train", batch_size=2, seed=5, shard=(reader, 2)) for reader in (0, 1)]
    for _ in range(3):
        state, batch = whole.state(), next(whole)
        for reader, part in enumerate(parts):
            np.testing.assert_array_equal(next(part)["encoder_input_tokens"], batch["encoder_input_tokens"][reader::2])
    again = task.feed("train", batch_size=4, seed=5)
    again.restore(state)
    np.testing.assert_array_equal(next(again)["decoder_target_tokens"], batch["decoder_target_tokens"])
    counts = [sum(1 for _ in task.feed("test", batch_size=200, shard=(reader, 2))) for reader in (0, 1)]
    assert counts == [2, 2]


def test_sentences_are_numbers():
    task = tasks.copyreverse(length=6, symbols=12, examples=4)
    for source, reference in task.references("test"):
        assert source.split() == reference.split()[::-1]
        assert task.decode(task.encode(source)) == source
    assert task.encode("0 11").tolist() == [2, 13, 1]
    assert task.decode([2, 0, 13, 1, 5]) == "0 11"
    with pytest.raises(tasks.DataError, match="symbols are 0 to 11, got '12'"):
        task.encode("12")
    with pytest.raises(tasks.DataError, match="numbers with spaces"):
        task.encode("one")
    with pytest.raises(tasks.DataError, match="never end"):
        task.references("train")


def test_settings_are_in_the_name_and_checked():
    assert tasks.copyreverse().name == "copyreverse"
    assert tasks.copyreverse(length=8).name == "copyreverse.length8"
    assert len({tasks.copyreverse(symbols=s).fingerprint() for s in (3, 4)}) == 2
    with pytest.raises(tasks.DataError, match="length must be a whole number from 2"):
        tasks.copyreverse(length=1)
    with pytest.raises(tasks.DataError, match="pipeline must be 'auto' or 'numpy'"):
        tasks.copyreverse().feed("train", 1, pipeline="seqio")


def test_seqio_has_the_same_pairs():
    seqio = pytest.importorskip("seqio")
    task = tasks.copyreverse(length=7, examples=5)
    task.register()
    dataset = seqio.get_mixture_or_task(task.name).get_dataset({"inputs": 7, "targets": 7}, "test", shuffle=False)
    for index, pair in enumerate(dataset.as_numpy_iterator()):
        wanted = task.source.example("test", index, None)
        np.testing.assert_array_equal(pair["inputs"], wanted["inputs"])
        np.testing.assert_array_equal(pair["targets"], wanted["targets"])
    assert index == 4
