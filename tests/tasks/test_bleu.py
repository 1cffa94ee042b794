"""BLEU against counts made by hand, sacreBLEU's own interface and t5's metric; signatures that say what it is."""

import math

import pytest
import sacrebleu

from tasks.bleu import bleu

HYPOTHESES = ["The cat sat on the mat.", "There is a Dog, here"]
REFERENCES = ["the cat sat on a mat.", "There is a dog here"]


def test_by_hand():
    # Tokens: "the cat sat on the mat ." beside "the cat sat on a mat .", and "there is a dog , here" beside
    # "there is a dog here": matched n-grams of those in the hypotheses, lower-cased ...
    uncased = [(6 + 5, 7 + 6), (4 + 3, 6 + 5), (2 + 2, 5 + 4), (1 + 1, 4 + 3)]
    # ... and as written: "Dog" differs, and "The", instead of which the other "the" is matched.
    cased = [(6 + 4, 7 + 6), (3 + 2, 6 + 5), (1 + 1, 5 + 4), (0 + 0, 4 + 3)]
    scores = bleu(HYPOTHESES, REFERENCES)
    assert scores["sacrebleu_uncased"].value == pytest.approx(
        100 * math.exp(sum(math.log(matched / count) for matched, count in uncased) / 4)
    )
    # The hypotheses are longer than the references, so brevity costs nothing. No 4-gram matches: smoothing halves one.
    precisions = [*(matched / count for matched, count in cased[:3]), 0.5 / cased[3][1]]
    expected = 100 * math.exp(sum(map(math.log, precisions)) / 4)
    assert scores["sacrebleu_cased"].value == scores["bleu"].value == pytest.approx(expected)


def test_short_hypotheses_pay_for_brevity():
    assert bleu(["a b c d e f g h"], ["a b c d e f g h i j"])["bleu"].value == pytest.approx(100 * math.exp(1 - 10 / 8))


def test_against_sacrebleu_and_t5():
    scores = bleu(HYPOTHESES, REFERENCES)
    for name, lowercase in (("sacrebleu_uncased", True), ("sacrebleu_cased", False)):
        other = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase, tokenize="intl")
        assert scores[name].value == pytest.approx(other.score)
    metrics = pytest.importorskip("t5.evaluation.metrics")
    assert metrics.bleu(REFERENCES, HYPOTHESES) == {"bleu": pytest.approx(scores["bleu"].value)}


def test_signatures_name_everything_that_matters():
    scores = bleu(HYPOTHESES, REFERENCES)
    version = sacrebleu.__version__
    assert scores["sacrebleu_uncased"].signature == f"nrefs:1|case:lc|eff:no|tok:intl|smooth:exp|version:{version}"
    assert scores["sacrebleu_cased"].signature == f"nrefs:1|case:mixed|eff:no|tok:intl|smooth:exp|version:{version}"
    assert scores["bleu"].signature.startswith("t5.evaluation.metrics.bleu, ")


def test_the_tokeniser_is_the_international_one():
    # It parts German quotation marks and the euro sign from words; the default one (13a) does not.
    assert bleu(["„ Haus “ kostet 5 € mehr"], ["„Haus“ kostet 5€ mehr"])["bleu"].value == pytest.approx(100)


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_sentences_must_be_as_many_as_references(hypotheses, references):
    with pytest.raises(ValueError, match=f"got {len(hypotheses)} and {len(references)}"):
        bleu(hypotheses, references)
