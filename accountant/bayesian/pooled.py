"""Noised histograms of like rounds, added up, and what they say of the average over all enrolled.

Each round draws every enrolled user with probability q afresh, no matter who was drawn before. So
over t rounds the expected sum of any value v ∈ [0, 1] of a user's bin, over those drawn, is q times
its sum over all N enrolled users and the t rounds: no assumption on users or on how norms come
about is needed, and returning users are no difficulty. By concavity the mean of the rounds'
logarithms is at most the logarithm of their mean, so bounding the pooled mean bounds the rounds'
total cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedlens.accountant.bayesian.noised_norms import PUBLIC_BINS, NoisedNorms, joint_shares
from fedlens.accountant.bayesian.pricing import PricedDistances, priced_at
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.noise.shares import ONE_SHARE, NoiseSharing

_BETS = 24


@dataclass(frozen=True)
class Pool:
    """Rounds of one event whose norms were released with the same noise."""

    event: SubsampledGaussian
    noise: float
    """z_h of every round's histogram."""
    rounds: int
    counts: Floats
    """Their histograms' sum, float64 [PUBLIC_BINS]."""
    sharing: NoiseSharing = ONE_SHARE
    """Who added the noise: where nodes did, there is more of it than z_h."""

    @classmethod
    def of(cls, event: SubsampledGaussian, noise: float, sharing: NoiseSharing = ONE_SHARE) -> Pool:
        """No round yet."""
        return cls(event, noise, 0, np.zeros(PUBLIC_BINS), sharing)

    @property
    def _variance(self) -> float:
        """The largest that noise on a count of one round may have; a bound must not go by less."""
        return self.sharing.deviation(self.noise, 1.0, PUBLIC_BINS) ** 2

    def joined(self, norms: NoisedNorms) -> Pool:
        """With one round more."""
        return replace(self, rounds=self.rounds + 1, counts=self.counts + np.array(norms.counts))

    def priced(self, lambdas: tuple[int, ...]) -> PricedDistances:
        """What a user of each bin is charged, and how many there seem to be: none below 0."""
        shares = joint_shares(self.event.noise_multiplier, self.noise)
        return priced_at(self.event.mechanism, lambdas, shares, np.maximum(self.counts, 0.0))

    def estimated_mean(self, values: Floats, users: int, quantile: float) -> Floats:
        """Estimate, ``quantile`` standard errors up, of a mean over rounds and users, [orders].

        The standard error is that of the noise, which is exact, and of drawing the cohorts, whose
        size is estimated from the same counts. The sum of both is taken to be normal.

        Args:
            values: of a user in each bin, in [0, 1]; a user who is not counted has 0. Float64
                [orders, PUBLIC_BINS].
            users: N, enrolled.
            quantile: of the normal distribution.
        """
        seen = np.maximum(self.counts, 0.0)
        variance = values**2 @ (seen + self.rounds * self._variance)
        sums = np.maximum(values @ self.counts, 0.0) + quantile * np.sqrt(variance)
        mean: Floats = np.minimum(sums / (self.event.sampling_rate * users * self.rounds), 1.0)
        return mean

    def bounded_mean(self, values: Floats, users: int, gamma: float) -> Floats:
        """Upper confidence bound on the mean over rounds and users, float64 [orders].

        Guarantee: but for a probability of ``gamma`` for each order, it holds at *every* number of
        rounds at once, whatever values users have, however these react to earlier releases, and
        whether or not one of the users was taken out. With n the noised counts, F the values' sum
        over users and y = −log(1 − τv), the product over rounds of

            exp(−y·n + qτF − s²·‖y‖²/2)

        has expectation 1 at most given the past (Π(1 − qτv_i) ≤ exp(−qτF) for the draws, and for
        the noise the normal moment of s, the largest deviation that it may have: z_h, or more where
        nodes add it), so by Ville's inequality it never reaches 1/(π·gamma) but for
        a probability π·gamma. Bets τ_j = 2^−j own the shares π_j = 1/(j(j+1)) of gamma.

        Arguments as of `estimated_mean`; ``gamma`` in (0, 1/2).
        """
        best = np.full(values.shape[0], np.inf)
        for j in range(1, _BETS + 1):
            tau = 0.5**j
            wealth = -np.log1p(-tau * values)
            spread = self.rounds * self._variance / 2 * (wealth**2).sum(axis=1)
            capital = math.log(j * (j + 1)) - math.log(gamma)
            found = wealth @ self.counts + spread + capital
            best = np.minimum(best, found / (self.event.sampling_rate * tau))
        mean: Floats = (np.maximum(best, 0.0) + self.rounds) / (users * self.rounds)
        return np.minimum(mean, 1.0)
