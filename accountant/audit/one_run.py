"""A lower bound on ε from one run with many canaries: Steinke, Nasr, Jagielski, 2023.

"Privacy Auditing with One (1) Training Run", arXiv:2305.08846, theorem 5.2. Each of m canaries is
included by a fair coin before the run; afterwards the auditor guesses some coins from the release.
If the mechanism is (ε, δ)-DP for one canary added or removed, then of r guesses at least v are
right with probability at most

    p(ε) = β + 2 m δ α,    β = P[W ≥ v],    α = max_i P[v > W ≥ v − i] / i,

for W binomial with r trials of success probability e^ε/(1 + e^ε). The smallest ε with p(ε) above
the allowed error is a lower bound on the mechanism's ε. Nothing is assumed about the mechanism, so
the bound holds for broken ones; how many guesses are made must be fixed before the scores are seen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from fedlens.accountant.bounds import require_count, require_probability
from fedlens.foundation.errors import WrongUse

Scores = NDArray[np.float64]
Coins = NDArray[np.bool_]

_LARGEST = 50.0
_GRID = np.linspace(0.0, _LARGEST, 501)
_HALVINGS = 60


def p_value(epsilon: float, *, canaries: int, guesses: int, correct: int, delta: float) -> float:
    """Largest probability of ``correct`` right guesses or more under (ε, δ)-DP; p(ε) above.

    Args:
        epsilon: ε ≥ 0.
        canaries: m, all canaries whose coin was thrown.
        guesses: r ≤ m, how many coins were guessed.
        correct: v ≤ r, right guesses.
        delta: δ in [0, 1).
    """
    rate = float(expit(epsilon))
    beta = float(binom.sf(correct - 1, guesses, rate))
    below = binom.pmf(np.arange(correct - 1, -1, -1), guesses, rate)
    steps = np.arange(1, correct + 1)
    alpha = float((below.cumsum() / steps).max(initial=0.0))
    return min(1.0, beta + 2 * canaries * delta * alpha)


def lower_bound(
    *, canaries: int, guesses: int, correct: int, delta: float, confidence: float = 0.95
) -> float:
    """ε that the mechanism exceeds, with probability ``confidence`` at least; 0 if none is shown.

    Args:
        canaries: m, all canaries whose coin was thrown.
        guesses: r in [1, m], fixed before the scores were seen.
        correct: v in [0, r], right guesses.
        delta: δ in [0, 1), the δ that the ε is stated at.
        confidence: 1 − the chance that the bound is above the truth.

    Raises:
        WrongUse: an argument out of range.
    """
    require_count("canaries", canaries)
    require_count("guesses", guesses)
    require_probability("confidence", confidence)
    if guesses > canaries or not 0 <= correct <= guesses:
        raise WrongUse(
            f"canaries = {canaries}, guesses = {guesses}, correct = {correct}: "
            "give canaries ≥ guesses ≥ correct ≥ 0"
        )
    if not 0 <= delta < 1:
        raise WrongUse(f"delta = {delta!r} cannot be used: give a probability in [0, 1)")

    def refuted(epsilon: float) -> bool:
        p = p_value(epsilon, canaries=canaries, guesses=guesses, correct=correct, delta=delta)
        return p < 1 - confidence

    # The first ε that is not refuted: p need not be monotone where the term in δ is large.
    kept = next((i for i, epsilon in enumerate(_GRID) if not refuted(float(epsilon))), len(_GRID))
    if kept in (0, len(_GRID)):
        return 0.0 if kept == 0 else _LARGEST
    low, high = float(_GRID[kept - 1]), float(_GRID[kept])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def cap(*, canaries: int, guesses: int, delta: float, confidence: float = 0.95) -> float:
    """The largest `lower_bound` there is: every guess right. A claim above it cannot be refuted."""
    return lower_bound(
        canaries=canaries, guesses=guesses, correct=guesses, delta=delta, confidence=confidence
    )


def count_correct(scores: Scores, included: Coins, guesses: int) -> int:
    """Guess the highest half of ``guesses`` scores as included, the lowest half as left out.

    Args:
        scores: float64 [m]; an included canary's is larger, if anything leaks.
        included: bool [m], the coins.
        guesses: r, even, at most m. Scores that tie are taken in the order of the canaries.

    Returns:
        v, how many guesses are right.

    Raises:
        WrongUse: ``guesses`` is odd, or the lengths do not fit.
    """
    if scores.shape != included.shape or guesses % 2 or not 0 < guesses <= len(scores):
        raise WrongUse(
            f"guesses = {guesses} of {len(scores)} scores and {len(included)} coins: "
            "give an even number, at most one guess a canary"
        )
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    return int((~included[order[:half]]).sum() + included[order[-half:]].sum())
