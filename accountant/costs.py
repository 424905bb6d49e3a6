"""Arithmetic of the Bayesian accountant: pure functions of distances, orders and confidence.

Distances d are L2 norms of the difference between the sums that two neighbouring data sets give;
``noise_std`` is absolute, in the same unit. Under adding or removing one user of a Poisson cohort,
d is the norm of that user's clipped update. λ is the order of the moment (α − 1 in Rényi terms).

Paper: A. Triastcyn, B. Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy
Guarantees", arXiv:2003.00997, equations 6 to 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from accountant.binomial import Floats, log_moment


def left_log_moments(
    lambdas: Sequence[int], rate: float, distances: ArrayLike, noise_std: float
) -> Floats:
    """Log E_{k~B(λ+1,q)} exp((k² − k)·d²/(2s²)), float64 [orders, m].

    This is the exact moment of the privacy loss towards the larger data set (equation 6 before its
    expectation over x), and an upper bound on the other direction's: the only one the corrected
    figure needs.

    Args:
        lambdas: orders, whole numbers ≥ 1.
        rate: q in [0, 1].
        distances: d ≥ 0, [m].
        noise_std: s > 0, absolute.
    """
    a = _squared_over_noise(distances, noise_std)
    return np.stack([log_moment(order + 1, rate, a) for order in _checked(lambdas)])


def right_log_moments(
    lambdas: Sequence[int], rate: float, distances: ArrayLike, noise_std: float
) -> Floats:
    """Log E_{k~B(λ,q)} exp((k² + k)·d²/(2s²)), float64 [orders, m]: equation 7 as printed.

    It bounds the other direction's moment through Jensen's inequality, at a cost of order q where
    the truth is of order q². Only the figure as published uses it.
    """
    a = _squared_over_noise(distances, noise_std)
    return np.stack([log_moment(order, rate, a, sign=1) for order in _checked(lambdas)])


def plug_in_cost(log_moments: Floats, weights: Floats) -> Floats:
    """Log E_x M(x) with the mean over a sample in place of the expectation, float64 [orders].

    Args:
        log_moments: log M, float64 [orders, m].
        weights: how often each of the m distances was seen, float64 [m], their sum above 0.
    """
    x, weights = _seen(log_moments, weights)
    top = x.max(axis=1, keepdims=True)
    mean = np.exp(x - top) @ weights / weights.sum()
    result: Floats = top[:, 0] + np.log(mean)
    return result


def hoelder_cost(
    log_moments: Floats, weights: Floats, *, power: int, rounds: int, quantile: float
) -> Floats:
    """Upper confidence bound on one round's share of the total cost, float64 [orders].

    By Hölder's inequality E_x Π_t M_t(x) ≤ Π_t (E_x M_t(x)^T)^(1/T) over T rounds, so a round costs
    (1/T)·log E_x[M(x)^power], where M is the moment of one release and ``power`` is T times the
    releases in the round. The expectation is bounded by the sample's mean plus ``quantile``
    standard errors. That is a confidence bound only as far as M(x)^power is close to normal, which
    it is for users of similar norms and is not for heavy tails.

    Args:
        log_moments: log M of one release, float64 [orders, m].
        weights: how often each of the m distances was seen, float64 [m], their sum 2 at least.
        power: exponent on M, ≥ 1.
        rounds: T, at least the number of rounds that there will ever be.
        quantile: of Student's t with m − 1 degrees of freedom; see `student_quantile`.
    """
    x, weights = _seen(power * log_moments, weights)
    top = x.max(axis=1, keepdims=True)
    scaled = np.exp(x - top)
    seen = weights.sum()
    mean = scaled @ weights / seen
    variance = (scaled - mean[:, None]) ** 2 @ weights / seen
    upper = mean + quantile * np.sqrt(variance / (seen - 1))
    result: Floats = (top[:, 0] + np.log(upper)) / rounds
    return result


def largest_share(log_moments: Floats, weights: Floats, power: int) -> Floats:
    """Share of the largest observation in Σ M^power, float64 [orders]: a check on the tail."""
    x, weights = _seen(power * log_moments, weights)
    scaled = np.exp(x - x.max(axis=1, keepdims=True))
    result: Floats = 1.0 / (scaled @ weights)
    return result


def student_quantile(gamma: float, observations: int) -> float:
    """The value that Student's t with m − 1 degrees of freedom exceeds with probability gamma.

    It takes the probability of failure itself: 1 − gamma is 1 in float64 from gamma = 1e-16 on.

    Raises:
        ValueError: gamma outside (0, 1/2), or fewer than 3 observations.
    """
    if not 0.0 < gamma < 0.5:
        raise ValueError(f"gamma = {gamma!r} cannot be used: give a probability in (0, 1/2)")
    if observations < 3:
        raise ValueError(f"observations = {observations!r}: give at least 3, or charge d = C")
    return float(-stdtrit(observations - 1, gamma))


def epsilon_by_order(costs: Floats, lambdas: Floats, delta: float, failure: float) -> Floats:
    """Equation 8 solved for epsilon, each order by itself: float64 [orders], each ≥ 0.

    Args:
        costs: Σ_t c_t(λ), float64 [orders].
        lambdas: λ, float64 [orders].
        delta: δ_μ that must hold altogether.
        failure: probability that a confidence bound in ``costs`` fails; it is part of ``delta``.

    Raises:
        ValueError: delta is not above ``failure``, or is no probability.
    """
    _require_failure(failure)
    if not failure < delta < 1.0:
        raise ValueError(
            f"delta = {delta!r} cannot be used: give one above the confidence bounds' own "
            f"probability of failure, {failure:.3g}, and below 1"
        )
    return np.maximum((costs - math.log(delta - failure)) / lambdas, 0.0)


def delta_at(costs: Floats, lambdas: Floats, epsilon: float, failure: float) -> float:
    """Equation 8 solved for delta at ``epsilon`` ≥ 0, the confidence bounds' failure included."""
    _require_failure(failure)
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon = {epsilon!r} cannot be used: give a finite number ≥ 0")
    exponent = float((costs - lambdas * epsilon).min())
    return min(1.0, failure + math.exp(min(exponent, 0.0)))


def _seen(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The columns of positive weight: one that was never seen must not set the scale."""
    positive = weights > 0
    if not positive.any() or (weights < 0).any():
        raise ValueError("weights: give numbers ≥ 0, one of them at least above 0")
    return values[:, positive], weights[positive]


def _require_failure(failure: float) -> None:
    if not 0.0 <= failure < 1.0:
        raise ValueError(f"failure = {failure!r} cannot be used: give a probability in [0, 1)")


def _checked(lambdas: Sequence[int]) -> Sequence[int]:
    if len(lambdas) == 0 or any(order < 1 or order != int(order) for order in lambdas):
        raise ValueError(f"lambdas = {lambdas!r} cannot be used: give whole numbers ≥ 1")
    return [int(order) for order in lambdas]


def _squared_over_noise(distances: ArrayLike, noise_std: float) -> Floats:
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 1:
        raise ValueError(f"distances has shape {d.shape}: give one distance a sample, shape [m]")
    if not np.isfinite(d).all() or (d < 0).any():
        raise ValueError("distances: give finite numbers ≥ 0")
    if not (math.isfinite(noise_std) and noise_std > 0):
        raise ValueError(f"noise_std = {noise_std!r} cannot be used: give a number above 0")
    result: Floats = (d / noise_std) ** 2 / 2
    return result
