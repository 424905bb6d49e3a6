"""Who takes part in a round: Poisson sampling of users from a secret source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Roster:
    """The enrolled users, by node, in the order of the nodes' partitions."""

    node_ids: tuple[int, ...]
    """Flower's ids of the nodes."""
    users: tuple[int, ...]
    """Users on each node."""

    @property
    def total(self) -> int:
        """N."""
        return sum(self.users)


Cohort = list[tuple[int, ...]]
"""The drawn users of each node of the roster, as ascending positions on the node."""


def draw_cohort(roster: Roster, sampling_rate: float, source: np.random.Generator) -> Cohort:
    """Draw each user independently with probability ``sampling_rate``.

    The number of users drawn on a node is binomial and its members uniform given that number,
    which is Poisson sampling at a cost that grows with the users drawn, not with those enrolled.
    """
    return [_drawn(users, sampling_rate, source) for users in roster.users]


def _drawn(users: int, sampling_rate: float, source: np.random.Generator) -> tuple[int, ...]:
    count = int(source.binomial(users, sampling_rate))
    return tuple(int(u) for u in np.sort(source.choice(users, count, replace=False)))


def everyone(roster: Roster) -> Cohort:
    """Record mode: each node works on all it has, and draws its records by itself."""
    return [tuple(range(users)) for users in roster.users]
