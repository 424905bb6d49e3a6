"""Which nodes and users take part: what nodes say of themselves, held against the declaration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedlens.client.messages import DESCRIBE, MEMBER_BYTES, Description, ReplyError, roster_digest
from fedlens.models.shapes import ImageShape
from fedlens.server.config.tree import Config
from fedlens.server.federation.contract_check import EnrolmentError, check_agreed, data_name
from fedlens.server.federation.exchange import exchange, wait_for_nodes
from fedlens.server.federation.names import name_of, names_of
from fedlens.server.federation.roster import Roster

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnrolledNode:
    """A node as it described itself."""

    node_id: int
    """Flower's."""
    told: Description

    @property
    def name(self) -> str:
        """What an operator calls it."""
        return name_of(self.node_id, self.partition)

    @property
    def partition(self) -> int:
        """Its position among the nodes, which stays when Flower's id changes."""
        return self.told.partition

    @property
    def numbers(self) -> tuple[int, ...]:
        """Keyed numbers of its users by position; none where it tells none."""
        return tuple(self.packed_numbers.tolist())

    @property
    def packed_numbers(self) -> NDArray[np.int64]:
        """The same in eight bytes a user, int64 [users] or [0]."""
        return np.frombuffer(self.told.members, dtype=f">i{MEMBER_BYTES}").astype(np.int64)


@dataclass(frozen=True)
class Federation:
    """The enrolled nodes and the schema that all of them agree on."""

    roster: Roster
    shape: ImageShape
    classes: int
    """Of the records."""
    sensitive_classes: int = 0
    """Classes of the sensitive attribute that a privatizer hides; 0 where no node need know it."""
    conditioned: bool = False
    """Whether the generator is asked for a class *and* a sensitive value."""
    nodes: tuple[EnrolledNode, ...] = ()
    """As they described themselves when the run began or went on."""
    data_name: str = ""
    """What the run's data are called: by the simulation, or as the federation declares."""

    @property
    def drawn_classes(self) -> int:
        """Classes of the generator: the records', or pairs (class x values + value)."""
        return self.classes * (self.sensitive_classes if self.conditioned else 1)


def enrol(
    grid: Grid,
    config: Config,
    revoked: tuple[Collection[int], Collection[int]] = ((), ()),
    objection: Callable[[EnrolledNode], str | None] = lambda node: None,
) -> Federation:
    """Wait for the declared nodes, ask each what it hosts, and check that it adds up.

    Args:
        grid: the transport.
        config: the run's.
        revoked: numbers of users, and positions of nodes, that take part in nothing any more.
        objection: why a population's registry turns a node away, if it does.

    Raises:
        EnrolmentError: too few nodes or users are there by ``membership.patience``, or more than
            declared; nodes disagree on the data's schema or share a partition; or they do not all
            know the same sensitive attribute where one is to be hidden.
    """
    wanted = config.data.nodes
    nodes = wait_for_nodes(grid, wanted, config.membership.patience)
    if len(nodes) > wanted:
        raise EnrolmentError(
            f"{len(nodes)} nodes are online, data.nodes declares {wanted}, which is a bound: "
            "raise it, or stop the others"
        )
    described = describe(grid, nodes, config.rounds.deadline)
    known = {node.node_id for node in described}
    for node in described:
        if node.partition in revoked[1]:
            logger.warning("%s is revoked and left out", node.name)
    described = tuple(node for node in described if node.partition not in revoked[1])
    taken = []
    for node in described:
        if why := outweighs(node, config) or objection(node):
            logger.warning("%s is turned away: %s", node.name, why)
        else:
            taken.append(node)
    federation = _agreed({node.node_id: node.told for node in taken}, config, revoked[0])
    silent = set(nodes) - known
    if lacking := lacks(federation.roster, config, ENOUGH if len(nodes) >= wanted else START):
        named = names_of(silent) or f"{len(silent)} more"
        see = f"; {named} failed or silent though online: see the log there" if silent else ""
        others = len(described) - len(taken)
        see += f"; {others} more were turned away: see this log" if others else ""
        raise EnrolmentError(f"{lacking}{see}")
    return federation


def outweighs(node: EnrolledNode, config: Config) -> str | None:
    """Why a node has too many users for sums from which it could be trimmed; None where it fits."""
    most = config.aggregation.trimmed(config.data.users)
    if not most or node.told.users <= most:
        return None
    return (
        f"it enrols {node.told.users} users, and aggregation.trimmed_share = "
        f"{config.aggregation.trimmed_share:g} of data.users trims {most}: raise it, or have the "
        "node divided"
    )


def describe(grid: Grid, nodes: Iterable[int], deadline: float) -> tuple[EnrolledNode, ...]:
    """What nodes say of themselves; who fails or is silent is left out. Ordered by position."""
    question = RecordDict({"config": ConfigRecord({"ask": "describe"})})
    replies = exchange(
        grid,
        dict.fromkeys(nodes, question),
        message_type=DESCRIBE,
        group="enrolment",
        deadline=deadline,
    )
    found = []
    for node, reply in replies.items():
        try:
            found.append(EnrolledNode(node, _with_sound_numbers(Description.from_record(reply))))
        except ReplyError as error:
            logger.warning(
                "%s cannot take part: %s; see its log, and that it runs the server's fedlens",
                names_of([node]) or "a node",
                error,
            )
    return tuple(sorted(found, key=lambda node: node.partition))


def _with_sound_numbers(told: Description) -> Description:
    """What a node says, if it names none of its users or each by one number that can be kept.

    More numbers than users would have the server count fewer users than there are.

    Raises:
        ReplyError: it does not.
    """
    packed = told.members
    if packed and len(packed) != told.users * MEMBER_BYTES:
        raise ReplyError("it names more or fewer users than it says that it has")
    if any(first >= 128 for first in packed[::MEMBER_BYTES]):
        raise ReplyError("it gives a user a number of 2^63 or more")
    return told


START = "start the others"
ENOUGH = "all that are declared are online, and not all can take part"


def lacks(roster: Roster, config: Config, why: str = START) -> str | None:
    """Which part of the quorum a roster lacks, in words with ``why``; None where it has it."""
    data, least, masked = config.data, config.membership, config.aggregation
    if masked.secure and len(roster.node_ids) < (needed := masked.survivors(data.nodes)):
        return (
            f"{len(roster.node_ids)} of the {data.nodes} nodes that data.nodes declares take part, "
            f"and {needed} have to for a masked sum (aggregation.tolerated_dropouts = "
            f"{masked.tolerated_dropouts}): {why}"
        )
    if len(roster.node_ids) < least.least_nodes * data.nodes:
        return (
            f"{len(roster.node_ids)} of the {data.nodes} nodes that data.nodes declares take part, "
            f"and membership.least_nodes = {least.least_nodes:g} of them are needed: {why}"
        )
    cut = masked.trimmed(data.users)
    if cut and roster.active <= 2 * cut:
        return (
            f"the nodes enrol {roster.active} users, and aggregation.trimmed_share = "
            f"{masked.trimmed_share:g} cuts {cut} off at either end: {why}"
        )
    if roster.active < least.least_users * data.users:
        return (
            f"the nodes enrol {roster.active} users, data.users declares {data.users}, and "
            f"membership.least_users = {least.least_users:g} of them are needed: {why}, or "
            "begin a run with data.users at the number enrolled"
        )
    return None


def roster_of(nodes: Iterable[EnrolledNode], revoked: Collection[int] = ()) -> Roster:
    """The roster of nodes in the order of their positions.

    A user who is on several nodes under one number counts on the first of them alone: one who could
    be drawn twice would move a sum by twice the clip. Revoked users count nowhere.
    """
    ordered = sorted(nodes, key=lambda node: node.partition)
    seen, left_out = np.array(sorted(revoked), dtype=np.int64), []
    for node in ordered:
        numbers = node.packed_numbers
        left_out.append(frozenset(np.flatnonzero(np.isin(numbers, seen)).tolist()))
        seen = np.union1d(seen, numbers)
    return Roster(
        tuple(node.node_id for node in ordered),
        tuple(node.told.users for node in ordered),
        tuple(left_out),
        tuple(roster_digest(node.told.members) for node in ordered),
    )


def doubles(nodes: Iterable[EnrolledNode]) -> int:
    """How many numbers more than one node names."""
    named = np.concatenate([np.zeros(0, np.int64), *(node.packed_numbers for node in nodes)])
    return len(named) - len(np.unique(named))


def _agreed(
    described: dict[int, Description], config: Config, revoked: Collection[int] = ()
) -> Federation:
    ordered = sorted(described.items(), key=lambda item: item[1].partition)
    partitions = [description.partition for _, description in ordered]
    if len(set(partitions)) != len(partitions):
        raise EnrolmentError(f"two nodes claim the same partition-id among {partitions}")
    if not described:
        raise EnrolmentError("no node can take part: see this log and the nodes' own")
    check_agreed(list(described.values()), config)
    if others := [d.partition for d in described.values() if d.slice != config.data.slice]:
        raise EnrolmentError(
            f"data.slice = {config.data.slice!r}, but the nodes with partition-id {others} answer "
            "for other users: all must run this version and declare that attribute"
        )
    if config.split.active and (deaf := [d.partition for d in described.values() if not d.splits]):
        raise EnrolmentError(
            f"split.side = {config.split.side!r}, but the nodes with partition-id {deaf} know of "
            "no private splits or forbid them (forbid-splits): ask everyone, or their operators"
        )
    schemas = {(d.shape, d.classes) for d in described.values()}
    if len(schemas) != 1:
        raise EnrolmentError(f"nodes disagree on the data's schema: {sorted(schemas)}")
    nodes = tuple(EnrolledNode(node, told) for node, told in ordered)
    roster = roster_of(nodes, revoked)
    if roster.active > config.data.users:
        raise EnrolmentError(
            f"the nodes enrol {roster.active} users, data.users declares {config.data.users}, "
            "which is a bound: set data.users to the number enrolled or more"
        )
    shape, classes = schemas.pop()
    filter_, sensitive_classes = config.privatizer, 0
    if filter_.hidden_attribute:
        described_ones = [description for _, description in ordered]
        sensitive_classes = _agreed_sensitive(described_ones, filter_.hidden_attribute)
    name = data_name([description for _, description in ordered], config)
    return Federation(roster, shape, classes, sensitive_classes, filter_.pairs, nodes, name)


def misfit(node: EnrolledNode, federation: Federation, config: Config) -> str | None:
    """Why a node that comes later cannot take part, or None; public facts of its schema alone."""
    told, hidden = node.told, config.privatizer.hidden_attribute
    if (told.shape, told.classes) != (federation.shape, federation.classes):
        return f"its images and classes are {told.shape} and {told.classes}"
    agreed = {(other.told.federation, other.told.contract) for other in federation.nodes}
    if agreed and (told.federation, told.contract) not in agreed:
        return "its data were prepared under another contract, or none"
    if told.slice != config.data.slice:
        return "it answers for users of another slice"
    if config.split.active and not told.splits:
        return "it knows of no private splits or forbids them (forbid-splits)"
    known = told.sensitive_attribute, told.sensitive_classes
    if hidden and known != (hidden, federation.sensitive_classes):
        return "it does not know the sensitive attribute as the others do"
    return None


def _agreed_sensitive(described: list[Description], wanted: str) -> int:
    """The number of classes of the sensitive attribute that every node knows."""
    if lacking := [d.partition for d in described if d.sensitive_attribute != wanted]:
        raise EnrolmentError(
            f"privatizer.sensitive_attribute is {wanted!r}, which the nodes "
            f"with partition-id {lacking} do not know of their records; add it to their data, or "
            "name another"
        )
    classes = {d.sensitive_classes for d in described}
    if len(classes) != 1:
        raise EnrolmentError(f"nodes disagree on the classes of {wanted!r}: {sorted(classes)}")
    if (found := classes.pop()) < 2:
        raise EnrolmentError(f"{wanted!r} has {found} classes, so there is nothing to hide")
    return found
