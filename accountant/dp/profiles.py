"""Privacy profiles δ(ε) in closed form: the Gaussian mechanism, and one subsampled release of it.

Balle and Wang, arXiv:1805.06530, theorem 8: for N(0,1) against N(μ,1),

    δ(ε) = Φ(μ/2 − ε/μ) − exp(ε)·Φ(−μ/2 − ε/μ).

One Poisson-subsampled release has a hockey-stick divergence of that shape in either direction,
because its likelihood ratio is monotone in the Gaussian's (Balle, Barthe, Gaboardi,
arXiv:1807.01647, theorem 2, for the direction in which the unit is removed).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import erfcx, log_ndtr, ndtr

from fedlens.accountant.dp.roots import falling_root

_ROOT = math.sqrt(2.0)
_ROUNDING = 4e-15
_FAR = -20.0


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) of N(0,1) against N(μ,1), rounded up; ``mu`` > 0 is sensitivity over noise."""
    if mu == math.inf:
        return 1.0
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near < _FAR:
        return min(1.0, float(ndtr(-near)))
    low, high = float(erfcx(near / _ROOT)), float(erfcx(far / _ROOT))
    # exp(ε)·exp(−far²/2) = exp(−near²/2): no large factor remains. The difference rounds.
    excess = (low - high) + _ROUNDING * low
    return min(1.0, 0.5 * math.exp(-near * near / 2) * excess) if near < 38 else _tail(near)


def _tail(near: float) -> float:
    return math.exp(max(float(log_ndtr(-near)), -745.0))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """The least ε ≥ 0 with `gaussian_delta` at most ``delta``, to 1e-12 relative; 0 for μ ≤ 0."""
    if mu <= 0:
        return 0.0
    return least_epsilon(lambda epsilon: gaussian_delta(epsilon, mu), delta, mu * mu / 2 + mu)


def sampled_delta(epsilon: float, rate: float, mu: float) -> float:
    """δ(ε) of one release that one unit takes part in with probability ``rate``: both directions.

    Removing: δ(ε) = q·δ_G(log(1 + (e^ε − 1)/q)). Adding: δ(ε) = (1 − e^ε(1−q))·δ_G(c), where
    e^−c = (e^−ε − (1−q))/q, and 0 where that is not positive.
    """
    q = rate
    grown = _log1p_of_expm1(epsilon, q)
    removed = q * gaussian_delta(grown, mu)
    left = math.expm1(-epsilon) + q
    if left <= 0:
        return removed
    added = math.exp(min(epsilon, 700.0)) * left * gaussian_delta(-math.log(left / q), mu)
    return max(removed, added)


def _log1p_of_expm1(epsilon: float, q: float) -> float:
    if epsilon > 30.0:
        return epsilon - math.log(q) + math.log1p((q - 1) * math.exp(-epsilon))
    return math.log1p(math.expm1(epsilon) / q)


def sampled_epsilon(delta: float, rate: float, mu: float) -> float:
    """The least ε ≥ 0 with `sampled_delta` at most ``delta``, to 1e-12 relative."""
    guess = mu * mu / 2 + mu
    return least_epsilon(lambda epsilon: sampled_delta(epsilon, rate, mu), delta, guess)


def least_epsilon(profile: Callable[[float], float], delta: float, guess: float) -> float:
    """The least ε ≥ 0, rounded up, at which a falling ``profile`` is at most ``delta``."""
    if profile(0.0) <= delta:
        return 0.0
    low, high = 0.0, max(guess, 1e-12)
    while profile(high) > delta:
        low, high = high, high * 2
        if high > 1e300:
            return math.inf
    target, tiny = math.log(delta), 1e-300
    root = falling_root(
        lambda epsilon: math.log(max(profile(epsilon), tiny)) - target,
        low,
        high,
        xtol=1e-13,
        rtol=1e-13,
    )
    step = 1e-13 * (1 + root)
    while profile(root) > delta:
        root, step = root + step, step * 2
    return root
