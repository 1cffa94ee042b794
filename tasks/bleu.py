"""BLEU of decoded sentences, as the paper's Table 4 prints it (footnotes): sacreBLEU, and the plain column.

Each score comes with its signature, which says everything that changes it: case, number of references, tokeniser,
smoothing, version. The paper's were tok intl, smooth exp, one reference, version 1.4.3, on wmt14/full. How its plain
column was computed is not said; here it is t5's metric (`t5.evaluation.metrics.bleu`), which is cased sacreBLEU with
tok intl.

Hypotheses and references are sentences as they would be printed, neither tokenised nor escaped.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple


class Score(NamedTuple):
    """BLEU from 0 to 100, and what it was computed with."""

    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """'bleu', 'sacrebleu_uncased' and 'sacrebleu_cased' of sentences and their one reference each.

    ValueError if there are none, or not equally many.
    """
    if len(hypotheses) != len(references) or not len(references):
        raise ValueError(
            f"BLEU needs as many hypotheses as references, at least one: got {len(hypotheses)} and {len(references)}"
        )
    uncased, cased = (_score(list(hypotheses), list(references), lowercase) for lowercase in (True, False))
    plain = Score(cased.value, f"t5.evaluation.metrics.bleu, equal to {cased.signature}")
    return {"bleu": plain, "sacrebleu_uncased": uncased, "sacrebleu_cased": cased}


def _score(hypotheses: list[str], references: list[str], lowercase: bool) -> Score:
    metric = _metric(lowercase)
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(float(value), metric.get_signature().format())


@functools.cache
def _metric(lowercase: bool):
    from sacrebleu.metrics import BLEU

    return BLEU(lowercase=lowercase, tokenize="intl", smooth_method="exp")
