"""An estimate of ε from one run with many canaries: Andrew et al., 2023.

"One-shot Empirical Privacy Estimation for Federated Learning", arXiv:2302.03098, section 3: in high
dimensions the canaries' scores are Gaussian, with one mean for those who took part and another for
those who did not; ε is that of telling the two apart. It is an *estimate*: of an attacker who sees
sums over rounds alone, under a model. It bounds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from fedlens.accountant.audit.one_run import Coins, Scores
from fedlens.foundation.errors import WrongUse

_LEAST = 1e-12


@dataclass(frozen=True)
class Separation:
    """How far apart the scores of canaries in and out of the run are."""

    mu: float
    """Difference of the means over the common standard deviation."""
    error: float
    """Standard error of ``mu`` (large-sample, for Gaussian scores of equal variance)."""

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided confidence interval of mu, its lower end at least 0."""
        reach = float(norm.isf((1 - confidence) / 2)) * self.error
        return max(0.0, self.mu - reach), max(0.0, self.mu + reach)


def separation(scores: Scores, included: Coins) -> Separation:
    """Fit two Gaussians of a common variance to the scores.

    Args:
        scores: float64 [m].
        included: bool [m]; at least two canaries on either side.

    Raises:
        WrongUse: fewer.
    """
    inside, outside = scores[included], scores[~included]
    n, k = len(inside), len(outside)
    if min(n, k) < 2:
        raise WrongUse(f"included = {n} of {n + k} canaries: both sides need two at least")
    free = n + k - 2
    pooled = ((n - 1) * inside.var(ddof=1) + (k - 1) * outside.var(ddof=1)) / free
    deviation = max(math.sqrt(float(pooled)), _LEAST * float(np.abs(scores).max(initial=1.0)))
    mu = float(inside.mean() - outside.mean()) / deviation
    return Separation(mu, math.sqrt(1 / n + 1 / k + mu * mu / (2 * free)))


def expected_separation(
    *, canaries: int, dims: int, sampling_rate: float, noise_multiplier: float, rounds: int
) -> float:
    """The mu that the described mechanism shows with random canaries clipped to C.

    A canary that takes part adds Bin(T, q) times C to its own score. The noise, T z² C² in all, the
    other half's canaries, whose directions overlap by 1/d, and the draw itself blur it.

    Args:
        canaries: m; half of them take part.
        dims: d, length of the release.
        sampling_rate: q.
        noise_multiplier: z, relative to the clipping norm C; 0 for the most that can be seen.
        rounds: T.
    """
    drawn = rounds * sampling_rate
    spread = drawn * (1 - sampling_rate)
    overlap = canaries / 2 / dims * (drawn**2 + spread)
    variance = overlap + spread / 2 + rounds * noise_multiplier**2
    return drawn / math.sqrt(variance)
