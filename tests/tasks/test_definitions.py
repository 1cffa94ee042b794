"""Documents of definitions and questions: every answer can be known, and those that count only from far back."""

import numpy as np
import pytest

import tasks
from tasks import DataError

NEAR, FAR = 18, 40
TASK = tasks.definitions(length=16, pairs=90, names=24, values=5, near=NEAR, far=FAR, documents=40, held_out=30)


def pairs(split, document):
    source = TASK.source
    tokens, weights = source.tokens(split, document, 0, 180), source.weights(split, document, 0, 180)
    assert len(tokens) == len(weights) == 180
    return tokens.reshape(90, 2), weights.reshape(90, 2)


@pytest.mark.parametrize("split", ["train", "test"])
def test_each_answer_is_what_its_name_was_defined_as(split):
    near = far = defined = 0
    for document in range(30):
        known, last, place_of = {}, {}, {}
        tokens, weights = pairs(split, document)
        assert not weights[:, 0].any()
        for place, ((first, second), counts) in enumerate(zip(tokens, weights[:, 1], strict=True)):
            if first == 1:
                name, value = divmod(second - 2 - 24 - 5, 5)
                assert 0 <= name < 24
                assert name not in known
                assert counts == 0
                known[name], place_of[name] = value, place
                defined += 1
            else:
                name, value = first - 2, second - 2 - 24
                assert known[name] == value
                distant = 2 * (place - last[name]) >= FAR
                assert distant or 2 * (place - place_of[name]) <= NEAR
                assert counts == (split == "train" or distant)
                near, far = near + (not distant), far + distant
            last[name] = place
    assert 0.2 < defined / (30 * 90) < 0.3
    assert near > 200
    assert far > 200


def test_answers_cannot_be_guessed():
    values = np.concatenate([words[weights[:, 1] > 0, 1] for words, weights in (pairs("test", n) for n in range(30))])
    shares = np.bincount(values - 26, minlength=5) / len(values)
    assert len(values) > 200
    assert shares.max() < 0.2 + 4 * np.sqrt(0.16 / len(values))


def test_segments_carry_the_weights_of_their_tokens():
    whole = [pairs("validation", n) for n in range(30)]
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
    again = tasks.definitions(length=16, pairs=90, names=24, values=5, near=NEAR, far=FAR, documents=40, held_out=30)
    np.testing.assert_array_equal(again.source.tokens("train", 3, 5, 50), TASK.source.tokens("train", 3, 0, 180)[5:50])
    assert again.fingerprint() == TASK.fingerprint()
    assert TASK.source.text(np.array([1, 38, 3, 28, 0])) == "let n1=v2 n1 v2 -"
    with pytest.raises(DataError, match="hardly a question is 192 tokens from its definition"):
        tasks.definitions(pairs=60)
