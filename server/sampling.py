"""Who takes part in a round: Poisson sampling of users from a secret source."""

from __future__ import annotations

from dataclasses import dataclass

from accountant.noise import BitSource, chosen


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


def draw_cohort(roster: Roster, sampling_rate: float, source: BitSource) -> Cohort:
    """Draw each user independently with probability ``sampling_rate``: Poisson sampling."""
    drawn = (chosen(users, sampling_rate, source) for users in roster.users)
    return [tuple(positions.tolist()) for positions in drawn]


def everyone(roster: Roster) -> Cohort:
    """Record mode: each node works on all it has, and draws its records by itself."""
    return [tuple(range(users)) for users in roster.users]
