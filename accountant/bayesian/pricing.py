"""What one release costs at each distance that was seen: events and evidence made into moments."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.bayesian.loss_moments import log_moments
from fedlens.accountant.bayesian.norms import BIN_EDGES, NORM_BINS, NormHistogram, checked_norms
from fedlens.accountant.dp.binomial import Floats
from fedlens.accountant.events import Event, GaussianRelease, PricedMechanism
from fedlens.foundation.errors import WrongUse

Norms = NormHistogram | NDArray[np.float64]
"""Evidence of one round: norms of the cohort's clipped updates, as a histogram or float64 [m], at
most C."""


class MisplacedEvidence(WrongUse):
    """Evidence that cannot be of the event that it came with."""


@dataclass(frozen=True)
class PricedDistances:
    """The distances of one round, and what one release costs at each."""

    left: Floats
    """log M by equation 6 as printed, float64 [orders, m]."""
    right: Floats
    """log M by equation 7 as printed, float64 [orders, m]."""
    moments: Floats
    """log M, exact or an upper bound in both directions, float64 [orders, m]; never above
    ``largest``."""
    largest: Floats
    """log M at the largest distance there can be, float64 [orders]."""
    weights: Floats
    """How often each distance was seen, float64 [m]."""

    @property
    def size(self) -> int:
        """How many distances were seen."""
        return int(self.weights.sum())

    @property
    def constant(self) -> bool:
        """Whether all distances are the same."""
        return bool(self.weights.size == 1)

    @property
    def at_largest(self) -> bool:
        """Whether every distance is the largest there can be: nothing is to be estimated then."""
        return self.constant and bool(np.array_equal(self.moments[:, 0], self.largest))


def at_largest(event: Event, lambdas: tuple[int, ...]) -> PricedDistances:
    """The event at the largest distance there can be: the bound of differential privacy."""
    return priced_at(event.mechanism, lambdas, BIN_EDGES[-1:], np.ones(1))


def priced(
    event: Event, lambdas: tuple[int, ...], evidence: Norms | None
) -> PricedDistances | None:
    """The event at the distances of the evidence; None if there are none, or no noise.

    Args:
        event: the mechanism.
        lambdas: orders, whole numbers ≥ 1.
        evidence: see `Norms`; None for a one-shot release, which has nothing to show for itself.

    Raises:
        MisplacedEvidence: evidence that cannot be of this event. The message says what to give.
        WrongUse: distances that are negative, not finite or above the event's sensitivity.
    """
    if evidence is None:
        return None
    if isinstance(event, GaussianRelease):
        raise MisplacedEvidence(
            "evidence of a one-shot release cannot be used: it is charged at its sensitivity; "
            "give None"
        )
    if not isinstance(evidence, NormHistogram):
        distances = checked_norms(evidence, event.sensitivity)
        shares, times = np.unique(distances / event.sensitivity, return_counts=True)
        weights = times.astype(np.float64)
    else:
        shares, weights = _binned(event.clipping_norm, evidence)
    if not event.private or not shares.size:
        return None
    return priced_at(event.mechanism, lambdas, shares, weights)


def _binned(clipping_norm: float, evidence: NormHistogram) -> tuple[Floats, Floats]:
    if evidence.clipping_norm != clipping_norm:
        raise MisplacedEvidence(
            f"evidence is of clipping norm {evidence.clipping_norm!r}, the event of "
            f"{clipping_norm!r}: give the norms of this event's updates"
        )
    counts = np.array(evidence.counts, dtype=np.float64)
    found = counts > 0
    return BIN_EDGES[found], counts[found]


def priced_at(
    mechanism: PricedMechanism, lambdas: tuple[int, ...], shares: Floats, weights: Floats
) -> PricedDistances:
    """What one release costs at distances that are known.

    Args:
        mechanism: in the accountants' terms.
        lambdas: orders, whole numbers ≥ 1.
        shares: distances as shares of the sensitivity, float64 [m], the first above 0.
        weights: how often each was seen, float64 [m].
    """
    largest = _on_edges(mechanism, lambdas)[2][:, -1]
    on_edges = shares * NORM_BINS
    if shares[0] > 0 and np.array_equal(on_edges, np.floor(on_edges)):
        columns = on_edges.astype(int) - 1
        left, right, moments = (table[:, columns] for table in _on_edges(mechanism, lambdas))
    else:
        left, right, moments = _tables(mechanism, lambdas, shares)
    return PricedDistances(left, right, np.minimum(moments, largest[:, None]), largest, weights)


@functools.lru_cache(maxsize=256)
def _on_edges(
    mechanism: PricedMechanism, lambdas: tuple[int, ...]
) -> tuple[Floats, Floats, Floats]:
    """The moments on every edge of a histogram; at the last, C, never above the worst case's."""
    return _tables(mechanism, lambdas, BIN_EDGES)


def _tables(
    mechanism: PricedMechanism, lambdas: tuple[int, ...], shares: Floats
) -> tuple[Floats, Floats, Floats]:
    q, z = mechanism.sampling_rate, mechanism.noise
    left, right = log_moments(lambdas, q, shares, z)
    return left, right, left
