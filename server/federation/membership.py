"""Who is there, round by round: nodes come late, leave, return and grow, within declared bounds.

Before each round the server looks which nodes are online, asks those that are new or did not answer
last time what they host, and before every tenth round all of them; it waits where fewer than the
quorum are there. All of it follows from who is online and enrolled, never from what users hold or
who was drawn. A node answers for the users that it named when it was last asked, so whoever joins
or leaves between changes no other user's part in a sum.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from flwr.serverapp import Grid

from fedlens.server.config.tree import Config
from fedlens.server.federation.contract_check import EnrolmentError, misfit
from fedlens.server.federation.enrolment import (
    EnrolledNode,
    Federation,
    claimed_twice,
    describe,
    doubles,
    fit,
    lacks,
    place_of_another,
    roster_of,
)
from fedlens.server.federation.roster import Roster
from fedlens.server.ledger.population import check_registry, joined, registry_url
from fedlens.store import NodeRoster, Store, open_store

logger = logging.getLogger(__name__)

PAUSE = 0.5
"""Seconds between looks at who is online, while a run waits."""
LONGEST_DESCRIPTION = 120.0
"""Seconds that a node which comes later has to describe itself; a round waits for it meanwhile."""
ASKED_EVERY = 10
"""Rounds after which every node is asked again whom it hosts."""
FIRST_RETRY, LONGEST_RETRY = 30.0, 3600.0
"""Seconds after which a node that was turned away or silent is asked again; they double."""

Revoked = tuple[Collection[int], Collection[int]]


class QuorumMissing(EnrolmentError):
    """Fewer nodes or users are there than a round needs, and waiting did not help."""


class UserRegistry:
    """A population's list of nodes and users, which all its runs share."""

    def __init__(self, store: Store, population: str, *, whole: bool = True) -> None:
        """Take part in a population's list; ``whole``: nodes answer for all users, not a slice."""
        self._store, self._population, self._whole = store, population, whole

    def note(self, nodes: Sequence[EnrolledNode]) -> None:
        """Take in how nodes describe themselves."""
        self._store.note_nodes(self._population, [self._roster(node) for node in nodes])

    def objection(self, node: EnrolledNode) -> str | None:
        """Why a node as it describes itself now cannot take part; None where it can.

        To be asked before it is noted.
        """
        if not self._store.hides_revoked(self._population, self._roster(node)):
            return None
        return (
            "one of its users is revoked, and it no longer names them by the numbers that it gave: "
            "give it back its members-key-file, or, with the revoked user out of its data, take "
            "the revocation back (fedlens population revoke --undo)"
        )

    def _roster(self, node: EnrolledNode) -> NodeRoster:
        return NodeRoster(node.partition, node.told.users, node.numbers, self._whole)

    def revoked(self) -> Revoked:
        """Numbers of users and positions of nodes that take part in nothing any more."""
        return self._store.revoked(self._population)


@contextmanager
def registry_of(config: Config) -> Iterator[UserRegistry | None]:
    """The registry of the population that a run spends from; None where it is alone.

    Raises:
        PopulationError: there is no such population, or its registry is lost.
        StoreError: its registry cannot be opened.
    """
    population = joined(config)
    if population is None:
        yield None
        return
    check_registry(config.privacy.population, population)
    with open_store(registry_url(config.privacy.population), create=True) as store:
        yield UserRegistry(store, population.identity, whole=not config.data.slice)


@dataclass
class _Retry:
    """When a node is asked again."""

    at: float = 0.0
    pause: float = FIRST_RETRY

    def later(self, now: float) -> None:
        self.at, self.pause = now + self.pause, min(2 * self.pause, LONGEST_RETRY)


@dataclass
class Membership:
    """The nodes of a run as they are now."""

    config: Config
    grid: Grid
    federation: Federation
    registry: UserRegistry | None = None
    on_wait: Callable[[str | None], None] = lambda lacking: None
    """Told what a round waits for, and None when it waits no more."""
    _there: dict[int, EnrolledNode] = field(default_factory=dict)
    """By position."""
    _gone: dict[int, str] = field(default_factory=dict)
    """Who was there and is not, and why, by position."""
    _doubted: set[int] = field(default_factory=set)
    """Positions of nodes whose reply to the last round was missing or refused."""
    _retries: dict[int, _Retry] = field(default_factory=dict)
    """By Flower's id, of nodes that were turned away or silent."""
    _roster: Roster = field(default_factory=lambda: Roster((), ()))
    _revoked: Revoked = ((), ())
    _looked_at: tuple[dict[int, EnrolledNode], Collection[int]] | None = None
    """Of what the roster was made."""
    _fitted: dict[int, EnrolledNode] = field(default_factory=dict)
    """By position, with the users that have a place."""
    _rounds: int = 0
    """Since all nodes were asked."""
    _doubles: int = 0
    _nameless: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._there = {node.partition: node for node in self.federation.nodes}
        self._look_up()

    def wait_for_quorum(self) -> Roster:
        """Who may be asked in the next round, once the quorum is there.

        Raises:
            QuorumMissing: it is not by ``membership.patience``.
        """
        until, told = time.monotonic() + self.config.membership.patience, ""
        self._rounds += 1
        if self._rounds >= ASKED_EVERY:
            self._doubted, self._rounds = set(self._there), 0
        while True:
            self._refresh()
            lacking = self._lacking()
            if lacking is None:
                if told:
                    self.on_wait(None)
                return self._roster
            if time.monotonic() >= until:
                raise QuorumMissing(lacking)
            told = self._tell_of_waiting(lacking, told)
            time.sleep(PAUSE)

    def _lacking(self) -> str | None:
        """Which part of the quorum is missing, and which nodes that were there are not."""
        lacking = lacks(self._roster, self.config)
        gone = ", ".join(why for _, why in sorted(self._gone.items()))
        return f"{lacking} ({gone})" if lacking and gone else lacking

    def _tell_of_waiting(self, lacking: str, told: str) -> str:
        if lacking != told:
            logger.warning("waiting for nodes: %s", lacking)
            self.on_wait(lacking)
        return lacking

    def note_answers(self, accepted: Sequence[int]) -> dict[str, object]:
        """What is kept of a round's nodes, by the places in the roster of those that answered.

        Nodes that did not are asked before the next round whether they are still there, and whom
        they host.
        """
        positions = sorted(self._there)
        self._doubted = {p for place, p in enumerate(positions) if place not in set(accepted)}
        return {
            "answered": [positions[place] for place in accepted],
            "nodes": self.config.data.nodes,
            "users": self._roster.active_on(accepted),
            "users_declared": self.config.data.users,
        }

    # Who is there

    def _refresh(self) -> None:
        online = set(self.grid.get_node_ids())
        for node_id in self._retries.keys() - online:
            del self._retries[node_id]  # asked at once when it is back
        gone = [p for p, node in self._there.items() if node.node_id not in online]
        for position in gone:
            self._lose(position, "is offline")
        known = {node.node_id for p, node in self._there.items() if p not in self._doubted}
        now = time.monotonic()
        ask = [i for i in sorted(online - known) if self._retry(i).at <= now]
        if ask:
            self._ask(ask)
        self._look_up()

    def _retry(self, node_id: int) -> _Retry:
        return self._retries.get(node_id, _Retry())

    def _ask(self, nodes: list[int]) -> None:
        deadline = min(self.config.rounds.wait, LONGEST_DESCRIPTION)
        described = describe(self.grid, nodes, deadline)
        silent = set(nodes) - {node.node_id for node in described}
        for position in [p for p, node in self._there.items() if node.node_id in silent]:
            self._lose(position, "does not answer")
        for node_id in silent:
            self._ask_later(node_id)
        self._doubted = set()
        twice = claimed_twice(node for node in described if node.partition not in self._there)
        for node in described:
            self._admit(node, twice.get(node))

    def _admit(self, node: EnrolledNode, why: str | None) -> None:
        """Let a node take part, if it fits and there is nothing against it; at one position."""
        self._leave_other_positions(node)
        others = {p: other for p, other in self._there.items() if p != node.partition}
        before = self._there.get(node.partition)
        if before == node:
            return
        why = why or self._objection(node, before, others)
        if why is not None:
            logger.warning("%s is turned away: %s", node.name, why)
            self._ask_later(node.node_id)
            if before is not None and before.node_id == node.node_id:
                self._there = others
            return
        self._retries.pop(node.node_id, None)
        self._there = {**others, node.partition: node}
        self._gone.pop(node.partition, None)

    def _leave_other_positions(self, node: EnrolledNode) -> None:
        there = self._there.items()
        for position in [p for p, one in there if one.node_id == node.node_id]:
            if position != node.partition:
                self._lose(position, f"says that its partition-id is {node.partition} now")

    def _objection(
        self, node: EnrolledNode, before: EnrolledNode | None, others: dict[int, EnrolledNode]
    ) -> str | None:
        if node.partition in self._revoked[1]:
            return "it was revoked"
        if self.registry is not None and (why := self.registry.objection(node)):
            return why
        if before is not None and before.node_id != node.node_id:
            return "another node that is online has its partition-id"
        if why := place_of_another(node):
            return why
        if len(others) >= (nodes := self.config.data.nodes):
            return f"data.nodes = {nodes} is a bound, and as many are there"
        return misfit(node.told, self.federation.schema, self.config)

    def _ask_later(self, node_id: int) -> None:
        self._retries.setdefault(node_id, _Retry()).later(time.monotonic())

    def _lose(self, position: int, why: str) -> None:
        name = self._there.pop(position).name
        self._gone[position] = f"{name} {why}"
        logger.warning("%s %s: its users take part again when it is back", name, why)

    # The registry

    def _give_places(self) -> None:
        """Give users places as far as there are; who has one keeps it."""
        held = dict(zip(sorted(self._fitted), self._roster.active_each, strict=True))
        fitted = fit(self._there.values(), self.config, self._revoked[0], held)
        changed = [node for node in fitted if self._fitted.get(node.partition) != node]
        for node in changed:
            said, users = self._there[node.partition].told.users, node.told.users
            logger.info("%s takes part with %d users", node.name, users)
            if users < said:
                logger.warning(
                    "%s says that it has %d users: for the others there is no place, by "
                    "data.users = %d, membership.largest_node or aggregation.trimmed_share",
                    *(node.name, said, self.config.data.users),
                )
        self._fitted = {node.partition: node for node in fitted}
        if self.registry is not None and changed:
            self.registry.note(changed)

    def _look_up(self) -> None:
        """Take up what was revoked meanwhile, and make the roster anew."""
        if self.registry is not None and self._revoked != (now := self.registry.revoked()):
            self._revoked = now
            for position, node in list(self._there.items()):
                if why := self.registry.objection(node):
                    logger.warning("%s is turned away: %s", node.name, why)
                    self._lose(position, "was turned away")
        places = set(self._revoked[1])
        here = {p: node for p, node in self._there.items() if p not in places}
        for position in self._there.keys() - here.keys():
            self._lose(position, "was revoked")
        looked_at = (dict(self._there), self._revoked[0])
        if looked_at == self._looked_at:  # as in most rounds: a million numbers are not read again
            return
        self._looked_at = looked_at
        self._give_places()
        self._roster = roster_of(self._fitted.values(), self._revoked[0])
        self._tell_of_doubles()
        self._tell_of_nodes_without_numbers()

    def _tell_of_nodes_without_numbers(self) -> None:
        """Say once which nodes name none of their users while others do."""
        hosting = {p: node for p, node in self._there.items() if node.told.users}
        without = tuple(sorted(p for p, node in hosting.items() if not node.told.members))
        without = without if len(without) < len(hosting) else ()
        if without and without != self._nameless:
            logger.warning(
                "the nodes with partition-id %s give no keyed numbers of their users, and others "
                "do: a person who is there and elsewhere counts twice, and none of their users "
                "can be revoked alone; give them the same members-key-file",
                list(without),
            )
        self._nameless = without

    def _tell_of_doubles(self) -> None:
        """Say once how many users have one number on several nodes."""
        doubled = doubles(self._there.values())
        if doubled and doubled != self._doubles:
            who = "1 user is" if doubled == 1 else f"{doubled} users are"
            logger.warning("%s enrolled on several nodes: each counts on the first alone", who)
        self._doubles = doubled
