"""What differs between two cards: a test a row, over the joint noise and the draw of both.

A row's bins are compared by χ²: d' Σ⁻¹ d, where d is the difference of the shares and Σ the sum of
both cards' covariances, that of the draws a bound. So sound people are called changed less often
than is said, the more so the more pictures each of them holds. All rows are tested, so p is
corrected by Holm's method: in at most 5 of 100 comparisons of equal people is any row at all named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc

from fedlens.diagnosis.cards.estimates import WIDE, Card, Floats, Histogram, bin_names
from fedlens.foundation.errors import WrongUse

LEVEL = 0.05
"""Chance that any row is named where nothing differs."""


@dataclass(frozen=True)
class Change:
    """One row of a comparison."""

    name: str
    p_value: float
    """Of this row alone."""
    adjusted: float
    """By Holm's method, over all rows; the row is named below `LEVEL`."""
    bin: str
    """The bin whose share differs most for its error."""
    difference: float
    """Of that bin's share, now less before."""
    half_width: float
    """Half of its 95% interval."""

    @property
    def named(self) -> bool:
        """Whether the row differs, all rows considered."""
        return self.adjusted < LEVEL

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**self.__dict__, "named": self.named}


def compare_cards(now: Card, before: Card) -> tuple[Change, ...]:
    """The rows that both cards have, in their order.

    Raises:
        WrongUse: they have none in common.
    """
    old = {one.statistic: one for one in before.histograms}
    pairs = [(one, old[one.statistic]) for one in now.histograms if one.statistic in old]
    if not pairs:
        raise WrongUse("the two cards have no statistic in common: compare data of one kind")
    tested = [_tested(*pair) for pair in pairs]
    adjusted = holm([one.p_value for one in tested])
    return tuple(replace(one, adjusted=q) for one, q in zip(tested, adjusted, strict=True))


def _tested(now: Histogram, before: Histogram) -> Change:
    difference = now.shares - before.shares
    covariance = now.noise + before.noise + now.draw + before.draw
    errors = np.sqrt(np.diag(covariance))
    most = int(np.argmax(np.abs(difference) / errors))
    chance = chance_of(difference, covariance, closed=now.statistic.closed)
    return Change(
        now.statistic.name,
        p_value=chance,
        adjusted=chance,
        bin=bin_names(now.statistic)[most],
        difference=float(difference[most]),
        half_width=WIDE * float(errors[most]),
    )


def chance_of(difference: Floats, covariance: Floats, *, closed: bool = True) -> float:
    """P-value of shares that differ so, where they would not but for normal errors.

    Args:
        difference: [bins].
        covariance: [bins, bins].
        closed: whether differences add up to 0, so that the last one follows from the others.
    """
    free = len(difference) - closed
    found = float(difference[:free] @ np.linalg.solve(covariance[:free, :free], difference[:free]))
    return float(chdtrc(free, found))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number by Holm's step-down method."""
    order = np.argsort(p_values, kind="stable")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
