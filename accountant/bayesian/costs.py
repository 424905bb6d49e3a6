"""A round's Bayesian cost from its users' moments, and what summed costs mean as ε or δ.

Paper: A. Triastcyn, B. Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy
Guarantees", arXiv:2003.00997, equations 6 to 8. Log-moments come from
`fedlens.accountant.bayesian.loss_moments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedlens.accountant.bounds import Bound, require_probability
from fedlens.accountant.dp.binomial import Floats
from fedlens.foundation.errors import WrongUse


def plug_in_cost(log_moments: Floats, weights: Floats) -> Floats:
    """Log E_x M(x) with the mean over a sample in place of the expectation, float64 [orders].

    Args:
        log_moments: log M, float64 [orders, m].
        weights: how often each of the m distances was seen, float64 [m], their sum above 0.
    """
    x, weights = seen(log_moments, weights)
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
    it is for users of similar norms and is not for heavy tails; see `confidence.sound_cost`.

    Args:
        log_moments: log M of one release, float64 [orders, m].
        weights: how often each of the m distances was seen, float64 [m], their sum 2 at least.
        power: exponent on M, ≥ 1.
        rounds: T, at least the number of rounds that there will ever be.
        quantile: of Student's t with m − 1 degrees of freedom; see `confidence.student_quantile`.
            0 where the sample is the whole population.
    """
    x, weights = seen(power * log_moments, weights)
    top = x.max(axis=1, keepdims=True)
    scaled = np.exp(x - top)
    total = weights.sum()
    mean = scaled @ weights / total
    variance = (scaled - mean[:, None]) ** 2 @ weights / total
    upper = mean + quantile * np.sqrt(variance / (total - 1)) if quantile else mean
    result: Floats = (top[:, 0] + np.log(upper)) / rounds
    return result


def largest_share(log_moments: Floats, weights: Floats, power: int) -> Floats:
    """Share of the largest observation in Σ M^power, float64 [orders]: a check on the tail."""
    x, weights = seen(power * log_moments, weights)
    scaled = np.exp(x - x.max(axis=1, keepdims=True))
    result: Floats = 1.0 / (scaled @ weights)
    return result


def epsilon_by_order(costs: Floats, lambdas: Floats, delta: float) -> Floats:
    """Equation 8 solved for epsilon, each order by itself: float64 [orders], each ≥ 0.

    The privacy loss exceeds this ε with probability ``delta`` at most, over the mechanism and over
    x: log δ ≤ Σ_t c_t(λ) − λε.

    Args:
        costs: Σ_t c_t(λ), float64 [orders].
        lambdas: λ, float64 [orders].
        delta: what is left of δ_μ once the probability that a confidence bound in ``costs`` fails
            is taken off.

    Raises:
        WrongUse: delta is no probability.
    """
    require_probability("delta", delta)
    return np.maximum((costs - math.log(delta)) / lambdas, 0.0)


def divergence_epsilon_by_order(costs: Floats, lambdas: Floats, delta: float) -> Floats:
    """ε of definition 4 of the paper, each order by itself: float64 [orders], each ≥ 0.

    Definition 4 bounds Pr[A(D) ∈ S] − e^ε·Pr[A(D') ∈ S], which is E[(1 − e^(ε−L))₊] at worst; as
    (1 − e^(ε−L))₊ ≤ e^(λ(L−ε))·λ^λ/(λ+1)^(λ+1) at every L, it is log(λ+1)/λ and a little more below
    `epsilon_by_order`. It is linear in the law of x, so it holds on average over x too. At one x:
    Canonne, Kamath, Steinke, arXiv:2004.00010, proposition 12. Arguments and errors as there.
    """
    require_probability("delta", delta)
    return np.maximum((costs - math.log(delta) - divergence_gain(lambdas)) / lambdas, 0.0)


def divergence_gain(lambdas: Floats) -> Floats:
    """−log(λ^λ/(λ+1)^(λ+1)), what `divergence_epsilon_by_order` saves on log δ at each order."""
    gain: Floats = np.log1p(lambdas) + lambdas * np.log1p(1 / lambdas)
    return gain


Conversion = Callable[[Floats, Floats, float], Floats]
"""`epsilon_by_order` or `divergence_epsilon_by_order`."""


def least(
    convert: Conversion, candidates: Sequence[tuple[Floats, float]], lambdas: Floats
) -> Bound:
    """The least epsilon over orders and over candidates: costs, with the δ left for them."""
    found = np.array([convert(costs, lambdas, left) for costs, left in candidates])
    best = found.argmin()
    return Bound(float(found.flat[best]), float(lambdas[best % lambdas.size]))


def seen(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The columns of positive weight: one that was never seen must not set the scale.

    Raises:
        WrongUse: a weight is negative, or all are 0.
    """
    positive = weights > 0
    if not positive.any() or (weights < 0).any():
        raise WrongUse("weights: give numbers ≥ 0, one of them at least above 0")
    return values[:, positive], weights[positive]
