"""Metrics as sums over positions, divided once at the end.

Evaluation adds up three numbers over every position of a split, each position once:

    nats     sum of weight x cross-entropy, in nats
    correct  sum of weight x (1 where the most likely token is the target, else 0)
    weights  sum of the loss weights

A task on text in pieces of words adds a fourth to the totals (`Task.totals`), so that vocabularies can be compared:

    bytes    how many bytes of text the counted positions stand for

A metric turns the totals into one number. Since nothing is divided before the end, the result does not depend on
the batch size, on the number of devices, or on a last batch that was filled up with rows of weight 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Sums = Mapping[str, float]


@dataclass(frozen=True)
class Metric:
    """A number with its unit and direction.

    name    the unit is part of it wherever there is more than one habit (per byte, per token, per dimension)
    unit    as printed beside the number
    better  'higher' or 'lower'
    formula of (total, weight), where total is the sum that the metric reads
    reads   the sum it needs: 'nats' or 'correct'
    per     the sum that is its weight: 'weights', or 'bytes'
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    formula: Callable[[float, float], float]
    reads: Literal["nats", "correct"]
    per: Literal["weights", "bytes"] = "weights"

    def compute(self, sums: Sums) -> float:
        """The metric of the totals of a whole split. ValueError if no position counted or a sum is missing."""
        missing = [key for key in (self.reads, self.per) if key not in sums]
        if missing:
            raise ValueError(f"{self.name} needs the sums {self.reads!r} and {self.per!r}, got {sorted(sums)}")
        total, weight = float(sums[self.reads]), float(sums[self.per])
        if not weight > 0:
            raise ValueError(f"{self.name}: the {self.per} sum to {weight:g}, so no position was counted")
        return self.formula(total, weight)


def _percent(correct: float, weight: float) -> float:
    return 100.0 * correct / weight


def _nats(nats: float, weight: float) -> float:
    return nats / weight


def _bits(nats: float, weight: float) -> float:
    return nats / weight / math.log(2)


def _perplexity(nats: float, weight: float) -> float:
    try:
        return math.exp(nats / weight)
    except OverflowError:  # above exp(709): a diverged model, to be reported rather than to stop the evaluation
        return math.inf


ACCURACY = Metric("accuracy", "%", "higher", _percent, "correct")
NATS_PER_TOKEN = Metric("nats_per_token", "nats/token", "lower", _nats, "nats")
# The same arithmetic under two names: a byte model's token is a byte, an image model's token is a channel of a pixel.
BITS_PER_BYTE = Metric("bits_per_byte", "bits/byte", "lower", _bits, "nats")
BITS_PER_BYTE_OF_TEXT = Metric("bits_per_byte", "bits/byte", "lower", _bits, "nats", "bytes")
BITS_PER_DIM = Metric("bits_per_dim", "bits/dim", "lower", _bits, "nats")
PERPLEXITY_PER_TOKEN = Metric("perplexity_per_token", "per token", "lower", _perplexity, "nats")
