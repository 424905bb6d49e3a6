"""Moments of the privacy loss when one unit is replaced by another at a given distance.

Neighbouring data sets give μ = (1−q)·P₀ + q·P₁ and ν = (1−q)·P₀ + q·P₂, Gaussians of deviation z
whose means lie at most 1 apart in units of the sensitivity 2C; see
`fedlens.accountant.dp.replaced`. How far apart P₁ and P₂ are, d = ‖u_i − u_j‖/(2C), depends on the
pair of users, and so does the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from fedlens.accountant.bayesian.loss_moments import checked_lambdas, squared_over_noise
from fedlens.accountant.dp.binomial import Floats, log_sum_exp
from fedlens.accountant.dp.replaced import log_absolute_moments, log_ternary

_NOTHING = -1e6
"""Stands for the logarithm of 0 without infinities to subtract from each other."""


def pair_log_moments(
    lambdas: Sequence[int], rate: float, shares: ArrayLike, noise: float
) -> Floats:
    """Log of a bound on E_ν[(μ/ν)^(λ+1)] in both directions, float64 [orders, m].

    The least of two bounds, and exact at q = 1:

    * joint convexity of (μ, ν) ↦ E_ν[(μ/ν)^α]: at most 1 + q·(exp(α(α−1)·d²/(2z²)) − 1);
    * 1 + Σ_{j≥2} binom(α,j)·q^j·T_j, with the ternary divergences T_j of Wang, Balle,
      Kasiviswanathan, arXiv:1808.00087, theorem 9. P₁ − P₂ is the integral, along the segment
      between their means, of a derivative that is proportional to d, so
      `fedlens.accountant.dp.replaced`'s second bound on T_j holds times d^j; its first does not
      depend on d.

    Args:
        lambdas: orders λ = α − 1, whole numbers ≥ 1.
        rate: q in (0, 1].
        shares: d in [0, 1], over the replace-one sensitivity 2C, [m].
        noise: z > 0, over the same sensitivity.
    """
    a, orders = squared_over_noise(shares, noise), checked_lambdas(lambdas)
    n = np.array(orders, dtype=np.float64)[:, None] + 1
    x = n * (n - 1) * a
    if rate == 1.0:
        return x
    with np.errstate(divide="ignore"):
        excess = math.log(rate) + x + np.log(-np.expm1(-x))
        terms = _log_terms(max(orders) + 1, rate, np.log(np.asarray(shares, float)), noise)
    ternary = np.stack([_log_sum(order + 1, terms) for order in orders])
    result: Floats = np.logaddexp(0.0, np.minimum(excess, ternary))
    return result


def _log_terms(largest: int, rate: float, log_shares: Floats, noise: float) -> Floats:
    """log(q^j·T_j/j!) at j = 2 … ``largest`` and each d, float64 [largest − 1, m]."""
    j, s = np.arange(2, largest + 1), 1 / (noise * noise)
    apart = j * (j - 1) * (s / 2) + j * math.log(s) / 2 + log_absolute_moments(j, math.sqrt(s))
    near = apart[:, None] + np.multiply.outer(j, log_shares)
    ternary = np.minimum(near, log_ternary(largest, noise)[:, None])
    result: Floats = ternary + (j * math.log(rate) - gammaln(j + 1))[:, None]
    return result


def _log_sum(n: int, terms: Floats) -> Floats:
    """Log Σ_j n!/(n−j)!·terms_j over j = 2 … n, float64 [m]; −∞ at distance 0."""
    j = np.arange(2, n + 1)
    ways = gammaln(n + 1) - gammaln(n - j + 1)
    return log_sum_exp(np.maximum(terms[: n - 1], _NOTHING) + ways[:, None], axis=0)
