"""Documents of definitions and questions: every answer can be known, and those that count only from far back."""

import numpy as np
import pytest

import tasks
from tasks import DataError

NEAR, FAR = 18, 40
TASK = tasks.definitions(length=16, triples=60, names=24, values=5, near=NEAR, far=FAR, documents=40, held_out=30)


def triples(split, document):
    source = TASK.source
    tokens, weights = source.tokens(split, document, 0, 180), source.weights(split, document, 0, 180)
    assert len(tokens) == len(weights) == 180
    return tokens.reshape(60, 3), weights.reshape(60, 3)


@pytest.mark.parametrize("split", ["train", "test"])
def test_each_answer_is_what_its_name_was_defined_as(split):
    near = far = defined = 0
    for document in range(30):
        known, last, place_of = {}, {}, {}
        words, weights = triples(split, document)
        assert not weights[:, :2].any()
        for place, ((word, *pair), counts) in enumerate(zip(words, weights[:, 2], strict=True)):
            name, value = pair[::-1] if word == 1 else pair
            assert 3 <= name < 27 <= value < 32
            if word == 1:
                assert name not in known
                assert counts == 0
                known[name], place_of[name] = value, place
                defined += 1
            else:
                assert word == 2
                assert known[name] == value
                distant = 3 * (place - last[name]) >= FAR
                assert distant or 3 * (place - place_of[name]) <= NEAR
                assert counts == (split == "train" or distant)
                near, far = near + (not distant), far + distant
            last[name] = place
    assert 0.2 < defined / (30 * 60) < 0.35
    assert near > 200
    assert far > 200


def test_answers_cannot_be_guessed():
    values = np.concatenate([words[weights[:, 2] > 0, 2] for words, weights in (triples("test", n) for n in range(30))])
    shares = np.bincount(values - 27, minlength=5) / len(values)
    assert len(values) > 200
    assert shares.max() < 0.2 + 4 * np.sqrt(0.16 / len(values))


def test_segments_carry_the_weights_of_their_tokens():
    whole = [triples("validation", n) for n in range(30)]
    counted, rows = 0.0, []
    for batch in TASK.feed("validation", 4):
        counted += batch["decoder_loss_weights"].sum()
        rows.append(batch)
    assert counted == sum(weights.sum() for _, weights in whole)
    tokens, weights = whole[0]
    for number, batch in enumerate(rows[:11]):  # slot 0 reads document 0 first
        piece = slice(16 * number, 16 * number + 16)
        np.testing.assert_array_equal(batch["decoder_target_tokens"][0], tokens.reshape(-1)[piece])
        np.testing.assert_array_equal(batch["decoder_loss_weights"][0], weights.reshape(-1)[piece])
    assert TASK.totals("test", {"weights": 3.0}) == {"weights": 3.0}


def test_the_same_document_every_time_and_words_to_read():
    again = tasks.definitions(length=16, triples=60, names=24, values=5, near=NEAR, far=FAR, documents=40, held_out=30)
    np.testing.assert_array_equal(again.source.tokens("train", 3, 5, 50), TASK.source.tokens("train", 3, 0, 180)[5:50])
    assert again.fingerprint() == TASK.fingerprint()
    assert TASK.source.text(np.array([1, 4, 28, 2, 4, 28, 0])) == "let n1 v1 ask n1 v1 -"
    with pytest.raises(DataError, match="hardly a question is 192 tokens from its definition"):
        tasks.definitions(triples=60)
