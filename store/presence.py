"""Which nodes a round had, and for what share of the declared users its release speaks.

Who is enrolled and which nodes answer is public: no figure here is computed from what users hold or
from who was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedlens.store.checks import MAX_LONG, check_whole, require


@dataclass(frozen=True, kw_only=True)
class PresenceRow:
    """The nodes of one round. Key: ``(run_id, round)``; recording it again replaces it."""

    run_id: str
    round: int
    answered: Sequence[int]
    """Positions (partition-id) of the nodes whose replies were added up."""
    nodes: int
    """Nodes that the run declares."""
    users: int
    """Users enrolled on the nodes that answered, whether drawn or not."""
    users_declared: int
    """N, the bound that sums are divided by."""

    def __post_init__(self) -> None:
        check_whole(self, "round", "nodes")
        check_whole(self, "users", "users_declared", most=MAX_LONG)
        holds = self.users_declared > 0 and self.users <= self.users_declared
        require(holds, "users", self.users, "give at most the users declared")

    @property
    def share(self) -> float:
        """Of the declared users, those for whom the round's release speaks."""
        return self.users / self.users_declared

    @property
    def whole(self) -> bool:
        """Whether no declared node and no declared user was missing."""
        return self.users == self.users_declared and len(self.answered) >= self.nodes

    @property
    def words(self) -> str:
        """Nodes and users in words."""
        return (
            f"{len(self.answered)} of {self.nodes} nodes, {self.users:,} of "
            f"{self.users_declared:,} users"
        )


@dataclass(frozen=True)
class Coverage:
    """For whom the releases of a run speak."""

    rows: tuple[PresenceRow, ...]
    """By round; rounds whose release was lost have none."""

    @property
    def short(self) -> tuple[PresenceRow, ...]:
        """The rounds in which somebody who was declared was missing."""
        return tuple(row for row in self.rows if not row.whole)

    @property
    def whole(self) -> bool:
        """Whether every round had all that was declared."""
        return not self.short

    @property
    def share(self) -> float:
        """Mean over rounds of the share of declared users; 1 before the first."""
        rows = self.rows
        return sum(row.share for row in rows) / len(rows) if rows else 1.0

    @property
    def words(self) -> str:
        """One or two sentences, empty before the first round."""
        if not self.rows:
            return ""
        if self.whole:
            return f"Every round had {self.rows[-1].words}."
        fewest = min(self.short, key=lambda row: (row.users, len(row.answered)))
        return (
            f"{len(self.short)} of {len(self.rows)} rounds had fewer nodes or users than declared "
            f"({_ranges([row.round for row in self.short])}); the fewest were {fewest.words} in "
            f"round {fewest.round}. The releases speak for {self.share:.0%} of the declared users "
            f"on average, the last one for {self.rows[-1].share:.0%}."
        )


def _ranges(numbers: Sequence[int]) -> str:
    """``rounds 3 to 5, 9``: runs of numbers, the first few of them."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    shown = [" to ".join(str(number) for number in one) for one in found[:6]]
    return f"rounds {', '.join(shown)}" + " and others" * (len(found) > 6)
