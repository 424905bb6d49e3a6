"""Rényi divergences of the subsampled Gaussian when one unit is replaced by another.

The pair is μ = (1−q)·P₀ + q·P₁ against ν = (1−q)·P₀ + q·P₂: Gaussians of deviation z whose means
are at most 1 apart from each other, so z is noise over the *replace-one* sensitivity (2C for
contributions clipped to C). A cohort of fixed size gives this pair: draw a cohort without the
replaced unit and, with probability q, put that unit in the place of a member drawn at random; given
all other draws the three sums differ by one contribution. Poisson sampling gives it too, P₀ being
the sum without the unit. Either way the release is a mixture of such pairs with common weights, and
exp((α−1)·D_α) is jointly convex, so what bounds every pair bounds the release. Swapping the
neighbours swaps P₁ and P₂, so one bound serves both directions.

At whole α the moment E_ν[(μ/ν)^α] is 1 + Σ_{j≥2} binom(α,j)·q^j·E_ν[((p₁−p₂)/ν)^j], and the last
factor is at most its value T_j with ν replaced by P₀ or by P₂ (joint convexity): the ternary
divergences of Wang, Balle, Kasiviswanathan, arXiv:1808.00087, theorem 9. Their T_j is at most
2·exp(j(j−1)/(2z²)). For Gaussians two sharper bounds hold, and are used here:

* T₂ = 2·(exp(1/z²) − exp(1/(2z²))), reached by three means at the corners of a triangle;
* T_j ≤ exp(j(j−1)/(2z²)) · E|(j−1)/z² + g/z|^j with g ~ N(0,1): p₁ − p₂ is the integral of the
  derivative along the segment between the means, whose points m obey |m| ≤ 1 and |m·(m₁−m₂)| ≤ 1,
  and Jensen's inequality lets the power pass under the integral.

Directly by joint convexity the moment is also at most 1 + q·(exp(α(α−1)/(2z²)) − 1).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fedlens.accountant.dp.binomial import Floats, log_sum_exp

Whole = NDArray[np.int_]

_EXACT = 256
"""Powers up to which moments of a Gaussian off its centre are exact instead of bounded."""


@functools.lru_cache(maxsize=1024)
def replaced_divergences(
    sampling_rate: float, noise_multiplier: float, orders: tuple[float, ...]
) -> Floats:
    """An upper bound on D_α of one release at each order, float64 [orders], read-only and cached.

    (α−1)·D_α is convex in α and 0 at α = 1, so chords between whole orders bound it between them.

    Args:
        sampling_rate: q in (0, 1).
        noise_multiplier: z ≥ 0, over the replace-one sensitivity; ∞ follows from 0.
        orders: α > 1.
    """
    alphas = np.array(orders)
    if noise_multiplier == 0.0:
        result = np.full(alphas.shape, np.inf)
    else:
        whole = np.unique([1.0, *np.floor(alphas), *np.ceil(alphas)])
        moments = _log_moments(whole.astype(int), sampling_rate, noise_multiplier)
        result = np.interp(alphas, whole, moments) / (alphas - 1)
    result.flags.writeable = False
    return result


def _log_moments(alphas: Whole, q: float, z: float) -> Floats:
    """(α−1)·D_α at whole orders α ≥ 1, float64 [orders]; 0 at α = 1."""
    log_terms = log_ternary(int(alphas.max()), z)
    result = np.zeros(alphas.shape)
    for at, alpha in enumerate(alphas):
        if alpha > 1:
            pairs = _convexity_excess(int(alpha), q, z)
            excess = min(_ternary_excess(int(alpha), q, log_terms), pairs)
            result[at] = np.logaddexp(0.0, excess)
    return result


def _ternary_excess(alpha: int, q: float, log_terms: Floats) -> float:
    j = np.arange(2, alpha + 1)
    ways = gammaln(alpha + 1) - gammaln(j + 1) - gammaln(alpha - j + 1)
    return float(log_sum_exp(ways + j * math.log(q) + log_terms[: alpha - 1], axis=0))


def _convexity_excess(alpha: int, q: float, z: float) -> float:
    x = alpha * (alpha - 1) / (2 * z * z)
    return math.log(q) + x + math.log(-math.expm1(-x))


def log_ternary(largest: int, z: float) -> Floats:
    """Logarithms of bounds on T_j for j = 2 … ``largest``, float64 [largest − 1]."""
    j, s = np.arange(2, max(largest, 2) + 1), 1 / (z * z)
    apart: Floats = j * math.log(s) / 2 + log_absolute_moments(j, math.sqrt(s))
    result: Floats = np.add(j * (j - 1) * (s / 2), np.minimum(math.log(2), apart))
    result[0] = min(result[0], math.log(2) + s + math.log(-math.expm1(-s / 2)))
    return result


def log_absolute_moments(j: Whole, root: float) -> Floats:
    """Log of a bound on E|b + g|^j with b = (j−1)·root and g ~ N(0,1), float64 [j]."""
    shift: Floats = np.log(j - 1) + math.log(root)
    log_norm = math.log(2) / 2 + (gammaln((j + 1) / 2) - math.log(math.pi) / 2) / j
    # Minkowski: the j-norm of a constant plus a Gaussian is at most the sum of their j-norms.
    result: Floats = j * np.logaddexp(shift, log_norm)
    few = j <= _EXACT
    exact = _log_even_moments(j[few], shift[few])
    result[few] = np.minimum(result[few], exact)
    return result


def _log_even_moments(j: Whole, shift: Floats) -> Floats:
    """E(b+g)^n = b·E(b+g)^(n−1) + (n−1)·E(b+g)^(n−2); odd j lie below their neighbours' mean."""
    moments = [np.zeros_like(shift), shift]
    for n in range(2, int(j.max()) + 2):
        moments.append(np.logaddexp(shift + moments[-1], math.log(n - 1) + moments[-2]))
    table, at = np.array(moments), np.arange(j.size)
    result: Floats = (table[j - j % 2, at] + table[j + j % 2, at]) / 2
    return result
