"""Rényi divergence of the Poisson-subsampled Gaussian at every real order, and its conversion.

Adding or removing one unit: the larger of the two directions is ``D_α((1−q)N(0,z²)+qN(1,z²) ‖
N(0,z²))`` at every order α > 1 (Mironov, Talwar, Zhang, "Rényi Differential Privacy of the Sampled
Gaussian Mechanism", arXiv:1908.10530). Sensitivity is 1 here; z is noise over sensitivity.

With r = exp((2x−1)/(2z²)), whose mean under x ~ N(0,z²) is 1, and w = q(r−1),

    exp((α−1)·D_α) − 1 = E[(1 + w)^α − 1 − α·w],

whose integrand is nowhere negative: the trapezoid sum loses no digit to cancellation however small
the divergence is, and converges exponentially in the step, the integrand being analytic in a strip
of half width πz².
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fedlens.accountant.dp.binomial import Floats, log_moment, log_sum_exp

_NATS = 46.0
"""Quadrature errors are below exp(−_NATS) relative to the moment: less than rounding."""
_TINY_NOISE = 0.05
_NEAREST = 1.001
_SERIES = 18
"""Terms of the Taylor series of (1+w)^α − 1 − αw, used where it converges faster than 2^-n/n!."""
_TAIL = math.sqrt(2 * _NATS)
_OVERFLOW = 600.0


def renyi_divergences(
    sampling_rate: float, noise_multiplier: float, orders: tuple[float, ...]
) -> Floats:
    """D_α of one release at each order, float64 [orders], read-only and cached.

    Exact to rounding (relative 1e-12) for ``noise_multiplier`` ≥ 0.05 from order 1.001 on, whose
    divergence counts below it; an upper bound by convexity, with a gap of at most log(1/q), at
    fractional orders of less noise; ∞ for none.

    Args:
        sampling_rate: q in (0, 1].
        noise_multiplier: z ≥ 0, over the sensitivity.
        orders: α > 1.
    """
    return _divergences(float(sampling_rate), float(noise_multiplier), orders)


@functools.lru_cache(maxsize=4096)
def _divergences(q: float, z: float, orders: tuple[float, ...]) -> Floats:
    alphas = np.array(orders)
    if z == 0.0:
        result = np.full(alphas.shape, np.inf)
    elif q == 1.0:
        result = alphas / (2 * z * z)
    else:
        result = _log_moments(alphas, q, z) / (alphas - 1)
    result.flags.writeable = False
    return result


def _log_moments(alphas: Floats, q: float, z: float) -> Floats:
    """(α−1)·D_α for q in (0, 1), z > 0: sums at whole orders, quadrature between them."""
    result = np.empty_like(alphas)
    whole = alphas == np.floor(alphas)
    a = np.array([1 / (2 * z * z)])
    result[whole] = [log_moment(int(alpha), q, a)[0] for alpha in alphas[whole]]
    between = _by_quadrature if z >= _TINY_NOISE else _convexity_bound
    if not whole.all():
        result[~whole] = between(alphas[~whole], q, z)
    return result


def _by_quadrature(alphas: Floats, q: float, z: float) -> Floats:
    """Rounding spoils it next to order 1: there D is at most that of a larger order."""
    larger, at = np.unique(np.maximum(alphas, _NEAREST), return_inverse=True)
    result: Floats = (alphas - 1) * (quadrature(larger, q, z) / (larger - 1))[at]
    return result


def _convexity_bound(alphas: Floats, q: float, z: float) -> Floats:
    """((1−q) + q·r)^α ≤ (1−q) + q·r^α, so the moment is at most 1 + q·(E[r^α] − 1)."""
    x = alphas * (alphas - 1) / (2 * z * z)
    result: Floats = np.logaddexp(0.0, math.log(q) + x + np.log(-np.expm1(-x)))
    return result


def quadrature(alphas: Floats, q: float, z: float) -> Floats:
    """(α−1)·D_α by the trapezoid rule.

    Args:
        alphas: any real orders above 1, float64 [orders].
        q: sampling rate in (0, 1).
        z: noise over sensitivity, above 0; the work grows as orders/z², largest order times.

    Returns:
        float64 [orders].
    """
    step = _step(z)
    low, high = -_TAIL * z - 1.0, alphas.max() + _TAIL * z
    x = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
    log_density = -0.5 * (x / z) ** 2 + math.log(step / (z * math.sqrt(2 * math.pi)))
    log_excess = _log_excess(alphas, q, (2 * x - 1) / (2 * z * z))
    result: Floats = np.logaddexp(0.0, log_sum_exp(log_excess + log_density, axis=1))
    return result


def _step(z: float) -> float:
    """A step with which the trapezoid rule errs by less than exp(−_NATS).

    Within the strip |Im x| < y the integrand grows by at most exp(y²/(2z²)) over its values on the
    real line, so the error is below exp(y²/(2z²) − 2πy/step) for each y ≤ πz².
    """
    widest = math.pi * z * math.sqrt(2 / _NATS)
    if 2 * math.pi * z * z / widest <= math.pi * z * z:
        return widest
    return 1 / (_NATS / (2 * math.pi**2 * z * z) + 0.25)


def _log_excess(alphas: Floats, q: float, exponent: Floats) -> Floats:
    """log((1+w)^α − 1 − αw) for w = q(exp(exponent) − 1), without cancellation or overflow.

    Returns:
        float64 [orders, points].
    """
    w = q * np.expm1(np.minimum(exponent, _OVERFLOW))
    large, log_w = exponent > 30.0, math.log(q) + exponent
    log_base = np.where(large, np.logaddexp(log_w, math.log1p(-q)), np.log1p(w))
    alpha = np.broadcast_to(alphas[:, None], (alphas.size, w.size))
    grown, linear = alpha * log_base, alpha * w
    near, far = np.abs(linear) < 0.5, grown > 30.0
    middle = ~(near | far)
    result = np.empty(alpha.shape)
    result[near] = _log_series(alpha[near], np.broadcast_to(w, alpha.shape)[near])
    result[middle] = np.log(np.expm1(grown[middle]) - linear[middle])
    log_linear = np.where(large, np.log(alpha) + log_w, np.log1p(np.maximum(linear, 0.0)))
    result[far] = grown[far] + np.log1p(-np.exp(log_linear[far] - grown[far]))
    return result


def _log_series(alpha: Floats, w: Floats) -> Floats:
    """Log of Σ_{n≥2} binom(α, n)·wⁿ where |αw| < 1/2."""
    total = np.zeros_like(w)
    for n in range(_SERIES, 2, -1):  # Horner: 1 + (α−2)/3·w·(1 + (α−3)/4·w·(…))
        total = (alpha - n + 1) / n * w * (1 + total)
    smallest = np.finfo(np.float64).tiny
    result: Floats = (
        np.log(alpha * (alpha - 1) / 2)
        + 2 * np.log(np.maximum(np.abs(w), smallest))
        + np.log1p(total)
    )
    return result


def epsilons(divergences: Floats, orders: Floats, delta: float) -> Floats:
    """Epsilon at ``delta`` from the divergence of each order, float64 [orders], each ≥ 0.

    Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", arXiv:2004.00010,
    proposition 12 (in the form of Balle et al., arXiv:1905.09982); and 0 where the divergence alone
    keeps the total variation distance below δ (Bretagnolle and Huber).

    Args:
        divergences: D_α, float64 [orders], total over all releases.
        orders: α > 1, float64 [orders].
        delta: in (0, 1).
    """
    slack = (math.log(delta) + np.log(orders)) / (orders - 1)
    bound = divergences + np.log1p(-1 / orders) - slack
    apart = np.sqrt(-np.expm1(-divergences)) > delta
    result: Floats = np.where(apart, np.maximum(bound, 0.0), 0.0)
    return result


def deltas(divergences: Floats, orders: Floats, epsilon: float) -> Floats:
    """The same conversion solved for delta at ``epsilon`` ≥ 0: float64 [orders], each in [0, 1]."""
    log_delta = (orders - 1) * (divergences - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    total_variation = np.sqrt(-np.expm1(-divergences))
    result: Floats = np.minimum(np.exp(np.minimum(log_delta, 0.0)), total_variation)
    return result


def divergence_budgets(orders: Floats, epsilon: float, delta: float) -> Floats:
    """The D_α whose conversion (`epsilons`) is ``epsilon`` at ``delta``, at each order.

    Rounded down, and not above 0 where the order promises nothing.
    """
    slack = (math.log(delta) + np.log(orders)) / (orders - 1)
    result: Floats = (epsilon - np.log1p(-1 / orders) + slack) - 1e-14 * (epsilon + np.abs(slack))
    return result


def _default_orders() -> tuple[float, ...]:
    nearest = 1 + np.geomspace(1e-12, _NEAREST - 1, 55)[:-1]
    near_one = 1 + np.geomspace(_NEAREST - 1, 1.0, 49)
    tenths = np.arange(11, 121) / 10
    whole = np.arange(13, 65)
    tail = np.unique(np.round(np.geomspace(64, 4096, 56)))[1:]
    return tuple(float(order) for order in np.unique([*nearest, *near_one, *tenths, *whole, *tail]))


DEFAULT_ORDERS = _default_orders()
"""Orders that the moments accountant tries: close to 1 for tiny noise, up to 4096 for huge.

What tiny noise z loses is about k/(2z²) for k participations, and the best α − 1 about z²."""
