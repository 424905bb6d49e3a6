"""Whether a card is as it was expected, with a stated error; where it cannot tell, it says so.

All expectations of a card share one error, `LEVEL`: each has its part of it.

- ``<`` and ``>``: it holds where the quantity's one-sided interval lies wholly on the right side,
  falls where the other one lies wholly on the wrong side. Either is wrong in at most that part.
- ``= uniform``: it falls where χ² rejects equal shares; equal people are rejected in at most that
  part. Else it holds as far as can be seen: the deviation of one bin that nine in ten cards would
  show is said. It cannot tell where even an empty bin could go unseen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import chdtri, chndtrinc, ndtri

from fedlens.diagnosis.cards.changes import LEVEL, chance_of
from fedlens.diagnosis.cards.estimates import Card, Histogram
from fedlens.models.cards.expectations import Expectation, check_expectations

Outcome = Literal["holds", "falls", "cannot tell"]
POWER = 0.9


@dataclass(frozen=True)
class Verdict:
    """One expectation, judged."""

    expectation: str
    outcome: Outcome
    says: str
    error: float
    """Chance that the verdict is wrong, at most."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def judge(card: Card, expected: Sequence[Expectation]) -> tuple[Verdict, ...]:
    """A verdict on each expectation.

    Raises:
        WrongUse: one is of a statistic or a bin that the card has not.
    """
    check_expectations(expected, [one.statistic for one in card.histograms])
    return tuple(_judged(card, one, LEVEL / len(expected)) for one in expected)


def _judged(card: Card, one: Expectation, level: float) -> Verdict:
    histogram = card[one.name]
    if one.sign == "=":
        return _even(histogram, one.text, level)
    found = histogram.quantity(one.place, -float(ndtri(level)))
    right, wrong = (found.high, found.low) if one.sign == "<" else (-found.low, -found.high)
    limit = one.limit if one.sign == "<" else -one.limit
    outcome: Outcome = "holds" if right < limit else "falls" if wrong > limit else "cannot tell"
    says = f"{found.says} is {found.value:.3g}, {found.low:.3g} to {found.high:.3g}"
    return Verdict(one.text, outcome, says, level)


def _even(histogram: Histogram, text: str, level: float) -> Verdict:
    bins = len(histogram.shares)
    level_share = np.full(bins, 1 / bins)
    draw = (np.diag(level_share) - np.outer(level_share, level_share)) / histogram.users
    covariance = histogram.noise + draw
    p = chance_of(histogram.shares - level_share, covariance)
    least = _least_seen(covariance, level)
    said = f"p = {p:.2g} against equal shares of {1 / bins:.1%}"
    if p < level:
        return Verdict(text, "falls", said, level)
    seen = f"; a share that is off by {least:.1%} shows in nine of ten cards"
    outcome: Outcome = "holds" if least <= 1 / bins else "cannot tell"
    return Verdict(text, outcome, said + seen, 1 - POWER)


def _least_seen(covariance: np.ndarray[Any, np.dtype[np.float64]], level: float) -> float:
    """By how much one bin's share has to be off, to be rejected in nine of ten cards."""
    bins = len(covariance)
    needed = chndtrinc(chdtri(bins - 1, level), bins - 1, 1 - POWER)
    off = np.full(bins, -1 / (bins - 1))
    off[0] = 1.0
    unit = off[:-1] @ np.linalg.solve(covariance[:-1, :-1], off[:-1])
    return math.sqrt(float(needed) / float(unit))
