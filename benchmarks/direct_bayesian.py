"""A Bayesian round written straight from the formulas, order by order: what to compare speed with.

For every order the distances are computed anew from the updates (once for both directions), and
every moment is a sum of exponentials in the log domain. Nothing is shared between orders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom, t

Updates = NDArray[np.float32]


def direct_round(
    updates: Updates,
    rate: float,
    noise_std: float,
    orders: Sequence[int],
    *,
    rounds: int = 10,
    gamma: float = 1e-12,
) -> NDArray[np.float64]:
    """One round's cost at each order, with Hölder over ``rounds`` and a Student-t bound.

    Args:
        updates: users' clipped updates, float32 [m, d].
        rate: q in (0, 1).
        noise_std: absolute, in the updates' unit.
        orders: λ, whole numbers ≥ 1.
        rounds: T.
        gamma: failure of each confidence bound.

    Returns:
        float64 [orders]: the larger of equations 6 and 7 of arXiv:2003.00997.
    """
    given = torch.from_numpy(updates)
    without = torch.zeros_like(given)
    costs = []
    for order in orders:
        distances = torch.linalg.vector_norm(given - without, dim=-1).double().numpy()
        left = _cost(_left(distances, rate, noise_std, order), rounds, gamma)
        right = _cost(_right(distances, rate, noise_std, order), rounds, gamma)
        costs.append(max(left, right))
    return np.array(costs)


def _left(
    distances: NDArray[np.float64], rate: float, noise_std: float, order: int
) -> NDArray[np.float64]:
    k = np.arange(order + 2)
    exponents = np.outer(distances**2 / (2 * noise_std**2), k * k - k)
    result: NDArray[np.float64] = logsumexp(exponents + binom.logpmf(k, order + 1, rate), axis=1)
    return result


def _right(
    distances: NDArray[np.float64], rate: float, noise_std: float, order: int
) -> NDArray[np.float64]:
    k = np.arange(order + 1)
    exponents = np.outer(distances**2 / (2 * noise_std**2), k * k + k)
    result: NDArray[np.float64] = logsumexp(exponents + binom.logpmf(k, order, rate), axis=1)
    return result


def _cost(log_moments: NDArray[np.float64], rounds: int, gamma: float) -> float:
    x = rounds * log_moments
    values = np.exp(x - x.max())
    spread = t.isf(gamma, x.size - 1) * values.std() / np.sqrt(x.size - 1)
    return float((x.max() + np.log(values.mean() + spread)) / rounds)
