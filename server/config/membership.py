"""The section of membership: how many of the declared nodes and users a run goes on with."""

from __future__ import annotations

from fedlens.server.config.section import NotNegative, Probability, Section


class MembershipConfig(Section):
    """Which part of the federation has to be there; nodes may come late, leave, return and grow.

    ``data.nodes`` and ``data.users`` are public bounds. All that sums are divided by comes from
    them, never from who is there.
    """

    least_nodes: Probability = 0.5
    """Share of ``data.nodes`` that a round needs: fewer, and the run waits."""
    least_users: Probability = 0.8
    """Share of ``data.users`` that have to be enrolled on the nodes that are there."""
    patience: NotNegative = 600.0
    """Seconds that a run waits: at its beginning for all declared nodes, later for as many as a
    round needs. Then it stops and says why; `fedlens resume` goes on once they are back."""
