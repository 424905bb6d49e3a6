"""Is the noise of a round's histogram of norms what the ledger says, and its own?

The histogram and the sum of one cohort are priced as one Gaussian release of the joined vector,
which holds only where their noises are independent. So the histogram's noise passes the tests that
every noise does, and is held against that of the sum beside it, wherever in the sum it might come
from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedlens.accountant.audit.noise import NoiseTest, Values, correlation, noise_test, unit


@dataclass(frozen=True)
class NormsTest:
    """What the tests of the histograms' noise say."""

    noise: NoiseTest
    """Of the histograms by themselves."""
    p_update: float
    """Largest correlation with as many neighbouring coordinates of the noise of the same round's
    sum, allowing for all places."""


def norms_test(values: Values, sums: Values) -> NormsTest:
    """Test the noise of several histograms.

    Args:
        values: float64 [n, bins], of each round's histogram, over its claimed deviation.
        sums: float64 [n, P], of the same rounds' sums.

    Raises:
        WrongUse: fewer than two histograms, or values that are not finite.
    """
    return NormsTest(noise_test(values), _beside(values, sums))


def _beside(values: Values, sums: Values) -> float:
    bins = min(values.shape[1], sums.shape[1])
    pairs = zip(values[:, :bins], sums, strict=True)
    return correlation(np.concatenate([_cosines(one, row) for one, row in pairs]), bins)


def _cosines(one: Values, row: Values) -> Values:
    """Cosines between a histogram's noise and every window of a sum's."""
    windows = sliding_window_view(row, len(one))
    lengths = np.sqrt(np.maximum(sliding_window_view(row**2, len(one)).sum(axis=1), 1e-300))
    found: Values = np.clip(windows @ unit(one[None])[0] / lengths, -1.0, 1.0)
    return found
