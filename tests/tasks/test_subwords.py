"""Subword vocabularies: the same bytes from the same texts, nothing unknown, and exchanged files noticed."""

import json

import numpy as np
import pytest

import tasks
from tasks import subwords

DRAW = np.random.default_rng(0)
LETTERS = ["".join(DRAW.choice(list("abcdefgh "), 60)) for _ in range(40)]
TEXTS = ["the house by the lake", "das Haus am See", "über  große\tFlüsse", "", "lake house lake house"] * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "new" / "folder" / "small.model"
    facts = subwords.train(TEXTS, 310, path, kind="bpe")
    assert json.loads(subwords.facts_file(path).read_text()) == facts
    return path


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_deterministic(tmp_path, kind):
    facts = [subwords.train(LETTERS, 320, tmp_path / name, kind=kind) for name in ("a", "b")]
    assert facts[0] == facts[1]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert facts[0] != subwords.train(LETTERS[1:], 320, tmp_path / "c", kind=kind)


def test_numbers_and_sizes(model):
    words = subwords.load(str(model))
    assert words.size == 310
    ids = words.encode(["lake house", "", "東京 \x00"])
    assert ids[1] == [] and all(2 < one < 310 for text in ids for one in text)
    assert [words.decode(text) for text in ids] == ["lake house", "", "東京 \x00"]
    assert words.decode([*ids[0], 1, *ids[0], 0, 0]) == "lake house" == words.decode([0, *ids[0]])
    for wrong in (-1, 310):
        with pytest.raises(ValueError, match=f"from 0 to 309, got {wrong}"):
            words.decode([wrong])


def test_lossless_vocabularies_keep_white_space(tmp_path, model):
    text = "  if x:\n\n\treturn  y \r\n"
    subwords.train([text, *TEXTS], 310, tmp_path / "f", kind="bpe", lossless=True)
    words = subwords.load(str(tmp_path / "f"))
    assert words.decode(words.encode([text])[0]) == text
    plain = subwords.load(str(model))
    assert plain.decode(plain.encode(["a  b "])[0]) == "a b"


def test_a_part_of_the_texts_is_enough(tmp_path):
    half = [text for text in TEXTS[::2] if text]
    limit = max(sum(len(text.encode()) for text in some) for some in (half, TEXTS[1::2]))
    facts = subwords.train(TEXTS, 300, tmp_path / "f", kind="bpe", limit=limit)
    assert (facts["texts"], facts["texts_used"]) == (25, len(half))
    assert facts["bytes_used"] == sum(len(text.encode()) for text in half) <= limit
    assert facts["text_sha256"] == subwords.train(half, 300, tmp_path / "f", kind="bpe")["text_sha256"]


def test_no_more_than_the_limit_is_used_however_long_some_texts_are(tmp_path):
    short = [f"{' '.join(LETTERS[number : number + 10])} {number}" for number in range(9)]
    long = " ".join(LETTERS) * 5
    size = len(short[0])
    facts = subwords.train([*short[:2], long, *short[2:]], 300, tmp_path / "f", kind="bpe", limit=len(long) - 1)
    assert (facts["texts_used"], facts["bytes_used"]) == (4, 4 * size)  # every second one would be too much
    facts = subwords.train(["é" + long, *short], 300, tmp_path / "f", kind="bpe", limit=500)
    assert (facts["texts_used"], facts["bytes_used"]) == (1, 500)


def test_long_texts_are_used_whole(tmp_path):
    long = " ".join(LETTERS * 3)
    assert len(long) > 5000  # SentencePiece would leave it out
    subwords.train([long], 320, tmp_path / "f", kind="bpe")
    words = subwords.load(str(tmp_path / "f"))
    assert len(words.encode([long])[0]) < 0.8 * len(long)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 299}, "size of the vocabulary must be a whole number from 300"),
        ({"size": 9999}, "no vocabulary of 9999 pieces can be made of these [0-9,]+ bytes of text: .*<= "),
        ({"kind": "word"}, "must be 'unigram' or 'bpe', got 'word'"),
        ({"texts": []}, "no vocabulary of 300 pieces can be made of these 0 bytes"),
    ],
)
def test_what_cannot_be_trained(tmp_path, settings, message):
    with pytest.raises(tasks.DataError, match=message) as error:
        subwords.train(**{"texts": TEXTS, "size": 300, "path": tmp_path / "f", **settings})
    assert "\n" not in str(error.value) and not (tmp_path / "f").exists()


def test_texts_that_can_be_read_once_only_are_refused(tmp_path):
    with pytest.raises(TypeError, match="more than once"):
        subwords.train(iter(TEXTS), 300, tmp_path / "f")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "f").write_text("a file")
    with pytest.raises(tasks.DataError, match="cannot write the vocabulary"):
        subwords.train(TEXTS, 300, tmp_path / "f" / "model", kind="bpe")


def test_files_that_cannot_be_used(tmp_path, model):
    with pytest.raises(tasks.DataError, match="cannot read the vocabulary .*nowhere: No such file"):
        subwords.load(str(tmp_path / "nowhere"))
    copy = tmp_path / "copy.model"
    copy.write_bytes(model.read_bytes())
    assert subwords.load(str(copy)).size == 310  # a ready model needs no fingerprint beside it
    subwords.facts_file(copy).write_text(json.dumps({"sha256": "0" * 64}))
    copy.write_bytes(model.read_bytes() + b"")
    subwords._load_once.cache_clear()
    with pytest.raises(tasks.DataError, match="is not the vocabulary that copy.model.json was written for"):
        subwords.load(str(copy))
    for broken in ("", "[]", "{}"):
        subwords.facts_file(copy).write_text(broken)
        with pytest.raises(tasks.DataError, match="is no fingerprint"):
            subwords.load(str(copy))
    for data in (b"", b"<html>"):
        copy.write_bytes(data)
        with pytest.raises(tasks.DataError, match="is no SentencePiece model"):
            subwords.load(str(copy))


def test_models_that_number_otherwise(tmp_path):
    import sentencepiece

    with open(tmp_path / "f", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS), model_writer=file, vocab_size=40, model_type="bpe", minloglevel=2
        )
    with pytest.raises(tasks.DataError, match=r"numbers padding, end and unknown as \(-1, 2, 0\); \(0, 1, 2\) wanted"):
        subwords.load(str(tmp_path / "f"))
