"""Log-moments of the subsampled Gaussian at integer orders: binomial sums in the log domain.

Both accountants rest on ``E_{k~B(n,q)} exp(c_k·a)`` with c_k = k² − k or k² + k and a = d²/(2s²),
where d is the distance between two neighbouring sums and s the noise's standard deviation in the
same unit. No term of ``E[exp(c_k·a) − 1]`` is negative, so nothing cancels and the logarithm is
exact to rounding, however small or large it is.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]


def log_sum_exp(values: Floats, axis: int) -> Floats:
    """Log Σ exp along an axis, for finite values; SciPy's does the same with more checks."""
    top = values.max(axis=axis, keepdims=True)
    result: Floats = np.log(np.exp(values - top).sum(axis=axis)) + top.squeeze(axis)
    return result


def log_binomial(trials: int, rate: float) -> Floats:
    """Logarithm of the binomial probabilities, float64 [trials + 1]; ``rate`` in (0, 1)."""
    k = np.arange(trials + 1)
    ways = gammaln(trials + 1) - gammaln(k + 1) - gammaln(trials - k + 1)
    result: Floats = ways + k * np.log(rate) + (trials - k) * np.log1p(-rate)
    return result


def log_moment(trials: int, rate: float, a: Floats, sign: Literal[-1, 1] = -1) -> Floats:
    """``log E_{k~B(trials, rate)} exp((k² + sign·k)·a)``.

    Args:
        trials: n ≥ 1. With sign −1, n = λ + 1 = α gives the moment of order λ of the privacy loss
            (equation 6 of Triastcyn and Faltings, arXiv:2003.00997), which is (α − 1) times the
            Rényi divergence of order α; with sign +1, n = λ gives equation 7.
        rate: q in [0, 1].
        a: d²/(2s²) ≥ 0, float64 [m].
        sign: −1 or +1.

    Returns:
        float64 [m].
    """
    if rate == 0.0:
        return np.zeros_like(a)
    if rate == 1.0:
        return (trials * trials + sign * trials) * a
    k = np.arange(trials + 1)
    exponents = (k * k + sign * k).astype(np.float64)
    used = exponents > 0
    log_weights = log_binomial(trials, rate)[used, None]
    x = np.multiply.outer(exponents[used], np.maximum(a, np.finfo(np.float64).tiny))
    excess = log_sum_exp(log_weights + x + np.log(-np.expm1(-x)), axis=0)
    return np.where(a > 0, np.logaddexp(0.0, excess), 0.0)
