"""Were cohorts drawn as the ledger says: each unit with probability q, afresh each round?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom

Draws = NDArray[np.bool_]


@dataclass(frozen=True)
class SamplingTest:
    """Exact two-sided tests of Poisson sampling; each allows for how often it was repeated."""

    share: float
    """Share of units drawn, over all rounds; q is expected."""
    p_rounds: float
    """A round's cohort: Bin(m, q)."""
    p_nodes: float
    """A node's part of a round's cohort: Bin(m of the node, q)."""
    p_total: float
    """All draws: Bin(mT, q)."""
    p_users: float
    """One user's draws: Bin(T, q)."""
    p_overlap: float
    """Users drawn in two successive rounds: hypergeometric, given how many were drawn."""


def sampling_test(
    draws: Draws, sampling_rate: float, nodes: NDArray[np.int64] | None = None
) -> SamplingTest:
    """Test who was drawn.

    Args:
        draws: bool [T, m], whether a unit was drawn in a round.
        sampling_rate: q in (0, 1], as claimed.
        nodes: where each unit is, int64 [m]; None for all on one node.
    """
    rounds, units = draws.shape
    sizes = draws.sum(axis=1)
    shared = (draws[1:] & draws[:-1]).sum(axis=1)
    by_node = list(_by_node(draws, sampling_rate, np.zeros(units) if nodes is None else nodes))
    return SamplingTest(
        share=float(draws.mean()),
        p_rounds=_least(_two_sided(sizes, binom(units, sampling_rate))),
        p_nodes=_least(np.concatenate(by_node)),
        p_total=_least(_two_sided(draws.sum(), binom(draws.size, sampling_rate))),
        p_users=_least(_two_sided(draws.sum(axis=0), binom(rounds, sampling_rate))),
        p_overlap=_least(_two_sided(shared, hypergeom(units, sizes[1:], sizes[:-1]))),
    )


def _by_node(
    draws: Draws, sampling_rate: float, nodes: NDArray[np.generic]
) -> Iterator[NDArray[np.float64]]:
    for node in np.unique(nodes):
        mine = draws[:, nodes == node]
        yield _two_sided(mine.sum(axis=1), binom(mine.shape[1], sampling_rate))


def _two_sided(counts: NDArray[np.int64], law: object) -> NDArray[np.float64]:
    below, above = law.cdf(counts), law.sf(counts - 1)  # type: ignore[attr-defined]
    both: NDArray[np.float64] = np.minimum(1.0, 2 * np.minimum(below, above))
    return both


def _least(p_values: NDArray[np.float64]) -> float:
    """The least p-value, times how many there are (Bonferroni)."""
    return float(min(1.0, np.min(p_values, initial=1.0) * max(1, np.size(p_values))))
