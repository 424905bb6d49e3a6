"""Upper confidence bounds on an expectation over users, from the few that were seen."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import stdtrit

from fedlens.accountant.bayesian.costs import seen
from fedlens.accountant.dp.binomial import Floats
from fedlens.foundation.errors import WrongUse

_BETS = 10
_LARGE = 30.0


def sound_cost(
    log_moments: Floats, weights: Floats, largest: Floats, *, power: int, rounds: int, gamma: float
) -> Floats:
    """Distribution-free upper confidence bound on (1/T)·log E_x[M(x)^power], float64 [orders].

    M^power lies between 1, at distance 0, and its value at the clipping norm. `mean_bound` of its
    place between them needs nothing else, so each order's bound holds with probability 1 − gamma at
    least whatever the users' norms are, heavy tails included. It is never above ``largest``'s cost.
    `costs.hoelder_cost` says why a round costs this.

    Args:
        log_moments: log M of one release, float64 [orders, m], none above ``largest``.
        weights: how often each of the m distances was seen, float64 [m].
        largest: log M at the largest distance there can be, float64 [orders].
        power: exponent on M, ≥ 1.
        rounds: T, at least the number of rounds that there will ever be.
        gamma: probability in (0, 1/2) with which each order's bound may fail.
    """
    x, weights = seen(power * log_moments, weights)
    top = power * largest
    upper = mean_bound(places(x, top), weights, gamma)
    bound: Floats = log_at(upper, top) / rounds
    return bound


def places(log_values: Floats, top: Floats) -> Floats:
    """Where values lie between 1 and the largest: (e^x − 1)/(e^top − 1), float64 [orders, m].

    Args:
        log_values: x, float64 [orders, m], none above ``top``.
        top: logarithm of the largest, float64 [orders]; where it is 0 every place is 0.
    """
    above = top > 0
    shares = np.zeros_like(log_values)
    # neither overflowing nor cancelling
    shares[above] = (
        np.exp(log_values[above] - top[above, None])
        * np.expm1(-log_values[above])
        / np.expm1(-top[above])[:, None]
    )  # fmt: skip
    return np.minimum(shares, 1.0)


def log_at(place: Floats, top: Floats) -> Floats:
    """Logarithm of the value at a place of `places`, never above ``top``, float64 [orders]."""
    grown = np.log1p(place * np.expm1(np.minimum(top, _LARGE)))
    with np.errstate(divide="ignore"):
        large = top + np.log(place + (1 - place) * np.exp(-top))
    result: Floats = np.minimum(np.where(top < _LARGE, grown, large), top)
    return result


def mean_bound(values: Floats, weights: Floats, gamma: float) -> Floats:
    """Upper confidence bound on the mean of a variable in [0, 1], float64 [rows].

    If X has mean μ and values in [0, 1], then for each τ in (0, 1] the product of (1 − τX_i)/(1 −
    τμ) over an independent sample is never negative and has mean 1: the wealth of a gambler who
    bets that the mean is below μ. Gamblers with τ_j = 2^−j own the shares π_j = 1/((j+1)(j+2)) of
    one unit of capital, so by Markov's inequality no one's wealth reaches 1/(π_j·gamma), at the
    true μ, but for a probability of gamma altogether. With κ_j = log(1/(π_j·gamma))/m that is

        μ ≤ min_j (1 − exp(mean_i log(1 − τ_j·X_i) − κ_j)) / τ_j.

    τ = 1 serves samples close to 0 and is then nearly as good as Hoeffding's Bernoulli bound (1963,
    theorem 1); smaller τ make use of a small variance, as empirical likelihood does. The minimum
    over every τ would be the KL-inf bound of Honda and Takemura (2010); a fixed grid costs a factor
    on gamma that does not grow with m. It stays valid for samples drawn without replacement
    (Maclaurin's inequality), and whatever is added to values only raises it.

    Args:
        values: in [0, 1], float64 [rows, m].
        weights: how often each column was seen, float64 [m], above 0.
        gamma: probability in (0, 1/2) that the bound fails, each row by itself.

    Raises:
        WrongUse: gamma is out of range.
    """
    _require_gamma(gamma)
    total = float(weights.sum())
    best = np.ones(values.shape[0])
    for j in range(_BETS):
        tau, capital = 0.5**j, 1 / ((j + 1) * (j + 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_wealth = np.log1p(-tau * values) @ weights / total
        kappa = -(math.log(capital) + math.log(gamma)) / total
        best = np.minimum(best, -np.expm1(log_wealth - kappa) / tau)
    return best


@functools.lru_cache(maxsize=4096)
def student_quantile(gamma: float, observations: int) -> float:
    """The value that Student's t with m − 1 degrees of freedom exceeds with probability gamma.

    It takes the probability of failure itself: 1 − gamma is 1 in float64 from gamma = 1e-16 on.

    Raises:
        WrongUse: gamma outside (0, 1/2), or fewer than 3 observations.
    """
    _require_gamma(gamma)
    if observations < 3:
        raise WrongUse(f"observations = {observations!r}: give at least 3, or charge d = C")
    return float(-stdtrit(observations - 1, gamma))


def _require_gamma(gamma: float) -> None:
    if not 0.0 < gamma < 0.5:
        raise WrongUse(f"gamma = {gamma!r} cannot be used: give a probability in (0, 1/2)")
