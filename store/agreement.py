"""How far annotators agree beyond chance: Cohen's kappa for two, Krippendorff's alpha for all.

Written from the published formulas: Cohen (1960), "A coefficient of agreement for nominal scales";
Krippendorff (2011), "Computing Krippendorff's alpha-reliability". Labels are nominal, and samples
that somebody did not answer are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000


@dataclass(frozen=True)
class Agreement:
    """A coefficient with its bootstrap interval; ``nan`` where nothing can be said."""

    value: float
    low: float
    high: float
    items: int
    """Samples with at least two answers."""


def cohen_kappa(pairs: Sequence[tuple[int, int]], classes: int) -> float:
    """Cohen's kappa of two annotators.

    Args:
        pairs: for each sample that both answered, their classes, 0 to ``classes`` - 1.
        classes: how many there are.

    Returns:
        1 where they always agree; ``nan`` without a sample, or where both gave one class only.
    """
    if not pairs:
        return math.nan
    table: NDArray[np.float64] = np.zeros((classes, classes))
    first, second = np.array(pairs).T
    np.add.at(table, (first, second), 1)
    table /= table.sum()
    by_chance = float(table.sum(0) @ table.sum(1))
    return math.nan if by_chance >= 1 else float((np.trace(table) - by_chance) / (1 - by_chance))


def krippendorff_alpha(counts: NDArray[np.int64]) -> float:
    """Krippendorff's alpha for nominal classes.

    Args:
        counts: int64 [samples, classes], how many annotators gave each class.

    Returns:
        1 where all agree; ``nan`` without two answers about a sample, or with one class in all.
    """
    answered = counts[counts.sum(1) >= 2].astype(float)
    raters = answered.sum(1)
    total, by_class = raters.sum(), answered.sum(0)
    expected = total**2 - (by_class**2).sum()
    if expected == 0:
        return math.nan
    observed = ((raters**2 - (answered**2).sum(1)) / (raters - 1)).sum()
    return float(1 - (total - 1) * observed / expected)


def alpha_with_interval(
    counts: NDArray[np.int64], *, level: float = 0.95, seed: int = 0
) -> Agreement:
    """Alpha with a percentile interval of ``RESAMPLES`` bootstrap draws of samples."""
    counts = counts[counts.sum(1) >= 2]
    value = krippendorff_alpha(counts)
    if math.isnan(value):
        return Agreement(value, math.nan, math.nan, len(counts))
    random = np.random.default_rng(seed)
    # Samples with the same answers are alike: their numbers are drawn, not they themselves.
    kinds, numbers = np.unique(counts, axis=0, return_counts=True)
    draws = random.multinomial(len(counts), numbers / len(counts), size=RESAMPLES)
    found = _alphas(kinds.astype(float), draws.astype(float))
    low, high = np.nanquantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Agreement(value, float(low), float(high), len(counts))


def _alphas(kinds: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Alpha of each draw, [draws]: how often each kind of sample [kinds, classes] is in it."""
    raters = kinds.sum(1)
    total = draws @ raters
    expected = total**2 - ((draws @ kinds) ** 2).sum(1)
    inside = draws @ ((raters**2 - (kinds**2).sum(1)) / (raters - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected == 0, np.nan, 1 - (total - 1) * inside / expected)


def share_interval(hits: int, total: int, *, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson's interval of a share; (0, 1) of nothing."""
    if total == 0:
        return 0.0, 1.0
    share, spread = hits / total, z**2 / total
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))
