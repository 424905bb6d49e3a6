"""Who takes part in a round: Poisson sampling of users from a secret source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedlens.accountant.noise import BitSource, chosen


@dataclass(frozen=True)
class Roster:
    """The enrolled users, by node, in the order of the nodes' partitions."""

    node_ids: tuple[int, ...]
    """Flower's ids of the nodes."""
    users: tuple[int, ...]
    """Users on each node."""
    left_out: tuple[frozenset[int], ...] = ()
    """Positions on each node that are never drawn: of users who are revoked, or count elsewhere."""

    @property
    def total(self) -> int:
        """Users on all nodes, those who are never drawn included."""
        return sum(self.users)

    @property
    def active(self) -> int:
        """Users who may be drawn: at most the declared N."""
        return self.total - sum(len(positions) for positions in self.left_out)

    @property
    def active_each(self) -> tuple[int, ...]:
        """Users who may be drawn, by node."""
        return tuple(self.active_on((place,)) for place in range(len(self.users)))

    def active_on(self, places: Iterable[int]) -> int:
        """Users who may be drawn on the nodes at some places of the roster."""
        left_out = self.left_out or (frozenset(),) * len(self.users)
        return sum(self.users[place] - len(left_out[place]) for place in places)


def share_places(wanted: Sequence[int], held: Sequence[int], places: int) -> list[int]:
    """How many places each node gets of a bounded number: those that it has, then equal shares.

    So what a node says that it wants costs no other node a place that it has, nor any of the first
    ``places / len(wanted)``.

    Args:
        wanted: users of each node.
        held: how many of them have a place already; ``places`` at most in all.
        places: of all nodes together.
    """
    given = [min(pair) for pair in zip(wanted, held, strict=True)]
    left = places - sum(given)
    lacking = [most - has for most, has in zip(wanted, given, strict=True)]
    for behind, place in enumerate(sorted(range(len(wanted)), key=lacking.__getitem__)):
        more = min(lacking[place], left // (len(wanted) - behind))
        given[place] += more
        left -= more
    return given


DrawnUsers = list[tuple[int, ...]]
"""The drawn users of each node of the roster, as ascending positions on the node."""


def draw_users(roster: Roster, sampling_rate: float, source: BitSource) -> DrawnUsers:
    """Draw each user independently with probability ``sampling_rate``: Poisson sampling.

    Who is left out is drawn and put back: the bits that decide on the others stay theirs.
    """
    drawn = [chosen(users, sampling_rate, source).tolist() for users in roster.users]
    left_out = roster.left_out or (frozenset(),) * len(drawn)
    return [
        tuple(position for position in positions if position not in absent)
        for positions, absent in zip(drawn, left_out, strict=True)
    ]


def take_everyone(roster: Roster) -> DrawnUsers:
    """Record mode: each node works on all it has, and draws its records by itself."""
    return [tuple(range(users)) for users in roster.users]
