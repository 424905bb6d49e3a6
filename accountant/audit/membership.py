"""Membership inference on what was released: how well does a score tell members from others?

A success shows a leak; a failure shows that *this* attack failed and nothing else. The lower bound
on ε is that of a test between the two: true positives are at most e^ε false positives + δ (Kairouz,
Oh, Viswanath, arXiv:1311.0776, theorem 2.1), with exact binomial confidence bounds on both rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, rankdata

from fedlens.accountant.audit.one_run import Scores
from fedlens.foundation.errors import WrongUse

LOW_RATE = 0.01


@dataclass(frozen=True)
class MembershipAttack:
    """One attack's success."""

    auc: float
    """Chance that a member's score is above another's, ties counted half."""
    rate: float
    """True positive rate at `LOW_RATE` false positives."""
    rate_interval: tuple[float, float]
    """Its Clopper-Pearson interval, given the threshold."""
    lower_bound: float
    """ε that the release exceeds, with the confidence asked for."""


def binomial_interval(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson: the exact two-sided confidence interval of a probability."""
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.isf(tail, successes + 1, trials - successes))
    return low, high


def area_under_curve(members: Scores, others: Scores) -> float:
    """AUC by ranks (the Mann-Whitney statistic)."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() / len(members) - (len(members) + 1) / 2) / len(others))


def attack(
    members: Scores,
    others: Scores,
    *,
    delta: float,
    source: np.random.Generator,
    confidence: float = 0.95,
) -> MembershipAttack:
    """Measure an attack.

    Args:
        members: float64 [n], the higher the more like a member.
        others: float64 [k], scores of units that the release never saw.
        delta: δ that the lower bound is stated at.
        source: splits both in halves: one chooses the threshold, the other measures.
        confidence: of the interval and of the lower bound.

    Raises:
        WrongUse: fewer than four on either side.
    """
    if min(len(members), len(others)) < 4:
        raise WrongUse(f"{len(members)} members and {len(others)} others: give four of each")
    threshold = float(np.quantile(others, 1 - LOW_RATE, method="higher"))
    hits = int((members > threshold).sum())
    return MembershipAttack(
        auc=area_under_curve(members, others),
        rate=hits / len(members),
        rate_interval=binomial_interval(hits, len(members), confidence),
        lower_bound=split_bound(members, others, delta=delta, source=source, confidence=confidence),
    )


def split_bound(
    members: Scores, others: Scores, *, delta: float, source: np.random.Generator, confidence: float
) -> float:
    """log((TPR − δ)/FPR) at a threshold that one half chose, both rates bounded on the other."""
    (choosing, measuring) = zip(_halves(members, source), _halves(others, source), strict=True)
    thresholds = np.unique(np.concatenate(choosing))
    bounds = [_bound(*choosing, float(t), delta, confidence) for t in _thinned(thresholds)]
    best = float(_thinned(thresholds)[int(np.argmax(bounds))])
    return _bound(*measuring, best, delta, confidence)


def cap(members: int, others: int, *, delta: float, confidence: float = 0.95) -> float:
    """The largest lower bound there is: every member is named, and no other."""
    inside, outside = members - members // 2, others - others // 2
    return _log_ratio(inside, inside, 0, outside, delta, confidence)


def _halves(scores: Scores, source: np.random.Generator) -> tuple[Scores, Scores]:
    order = source.permutation(len(scores))
    half = len(scores) // 2
    return scores[order[:half]], scores[order[half:]]


def _thinned(thresholds: Scores, most: int = 100) -> Scores:
    places = np.unique(np.linspace(0, len(thresholds) - 1, most).astype(int))
    few: Scores = thresholds[places]
    return few


def _bound(members: Scores, others: Scores, at: float, delta: float, confidence: float) -> float:
    hits, alarms = int((members >= at).sum()), int((others >= at).sum())
    return _log_ratio(hits, len(members), alarms, len(others), delta, confidence)


def _log_ratio(
    hits: int, members: int, alarms: int, others: int, delta: float, confidence: float
) -> float:
    """Each rate is bounded on one side with half the error allowed."""
    low, _ = binomial_interval(hits, members, confidence)
    _, high = binomial_interval(alarms, others, confidence)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
