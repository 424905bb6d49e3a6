"""The section of secure aggregation: what the server sees of sums, and who adds the noise."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedlens.accountant.noise.shares import ONE_SHARE, NoiseSharing
from fedlens.server.config.section import Section, require

Natural = Annotated[int, Field(ge=0)]


class AggregationConfig(Section):
    """How nodes' sums reach the server."""

    secure: bool = False
    """Nodes mask their sums, so that the server learns the total of all of them and no node's own.
    User mode only; a round takes five exchanges with the nodes in place of one."""
    noise: Literal["server", "distributed"] = "server"
    """Who adds the noise: ``server``, to the exact total that it opens; or ``distributed``: each
    node adds its share before it masks, so the server never holds an exact sum, and draws the
    round's users by itself, so the server does not know who took part."""
    tolerated_dropouts: Natural = 0
    """Nodes that may fail in a round. With more, the round fails and is charged. The noise of nodes
    is reckoned without theirs: of n nodes with d dropouts and c colluding ones, it is n/(n−d−c)
    times the noise variance that a server would add, when all survive."""
    colluding: Natural = 0
    """Nodes that may do as a dishonest server wishes: their noise counts for none."""
    threshold: Natural = 0
    """Nodes that together can open what one of them masked, where it dropped out: above half of the
    nodes and colluding ones, at most the nodes without the tolerated dropouts. 0: that most."""

    trimmed_share: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Share of ``data.users`` whose weight is cut off at either end of each coordinate when plain
    sums of nodes are added up, so that hostile nodes of as many users move it by no more than the
    honest ones differ; 0: none. Nodes with more users take no part. Costs no privacy, and makes
    noise 1 / (1 − 2 x this) times as large beside the sum. Users who are at few nodes alone are
    trimmed like liars. User mode only."""

    @model_validator(mode="after")
    def _noise_of_nodes_is_masked(self) -> AggregationConfig:
        fix = "noise of nodes needs masks too: set aggregation.secure = true"
        require(self.secure or self.noise == "server", "aggregation.noise", self.noise, fix)
        return self

    def survivors(self, nodes: int) -> int:
        """The fewest nodes that a round's sum is of."""
        return nodes - self.tolerated_dropouts

    def sharing(self, nodes: int) -> NoiseSharing:
        """Whose noise a round's release has."""
        if self.noise == "server":
            return ONE_SHARE
        return NoiseSharing(self.survivors(nodes) - self.colluding, nodes)

    def shares(self, nodes: int) -> int:
        """Shares that give a secret back."""
        return self.threshold or self.survivors(nodes)

    def trimmed(self, users: int) -> int:
        """K: users whose weight is cut off at either end, of ``users`` that are declared."""
        return math.ceil(self.trimmed_share * users)

    def check(self, nodes: int, unit: str, users: int) -> None:
        """Hold the section against what the run declares.

        Raises:
            ConfigError: it would protect less than it says, or cannot be carried out.
        """
        if self.trimmed_share:
            self._check_trimming(nodes, unit, users)
        if not self.secure:
            return
        fix = "sums are of users; in record mode each node's reply has its own noise: set false"
        require(unit == "user", "aggregation.secure", True, fix)
        honest, least = self.survivors(nodes) - self.colluding, 1 + (self.noise == "server")
        fix = (
            f"of data.nodes = {nodes}, {honest} honest ones are sure to remain: at least {least} "
            "must; add nodes, or tolerate fewer dropouts and colluding ones"
        )
        require(honest >= least and nodes > 1, "aggregation.secure", True, fix)
        most, above = self.survivors(nodes), (nodes + self.colluding) // 2
        fix = f"give {above + 1} to {most}, or 0"
        if above >= most:
            fix = "no threshold will do: tolerate fewer dropouts, or add nodes"
        shares = self.shares(nodes)
        require(above < shares <= most, "aggregation.threshold", self.threshold, fix)

    def _check_trimming(self, nodes: int, unit: str, users: int) -> None:
        name, given = "aggregation.trimmed_share", self.trimmed_share
        fix = "a masked sum shows no node's own, so none can be left out: set secure = false"
        require(not self.secure, name, given, fix)
        require(unit == "user", name, given, "sums are of users; in record mode set 0")
        fix = f"of data.nodes = {nodes} none would be left in the middle: give 3 nodes or more"
        require(nodes >= 3, name, given, fix)
        cut = self.trimmed(users)
        fix = f"of data.users = {users}, {cut} are cut off at either end: give less"
        require(2 * cut < users, name, given, fix)
        fix = (
            f"a node of data.users / data.nodes users would weigh more than the {cut} that are cut "
            f"off, and could not be trimmed: give 1 / data.nodes = {1 / nodes:.4g} or more"
        )
        require(cut * nodes >= users, name, given, fix)
