"""Which nodes and users take part: what nodes say of themselves, held against the declaration."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedlens.client.messages import DESCRIBE, MEMBER_BYTES, Description, ReplyError
from fedlens.models.shapes import ImageShape
from fedlens.server.config.tree import Config
from fedlens.server.federation.contract_check import (
    EnrolmentError,
    Schema,
    agree_schema,
    class_names_of,
    data_name,
    misfit,
)
from fedlens.server.federation.exchange import exchange, wait_for_nodes
from fedlens.server.federation.names import keep_places, name_of, names_of, owner_of
from fedlens.server.federation.roster import Roster, share_places

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
    classless: bool = False
    """Whether the generator has one class, which is none, whatever the records' are."""
    nodes: tuple[EnrolledNode, ...] = ()
    """As they described themselves when the run began or went on."""
    data_name: str = ""
    """What the run's data are called: by the simulation, or as the federation declares."""
    contract: str = ""
    """SHA-256 of the contract that the nodes' data were prepared under; empty for none."""
    class_names: tuple[str, ...] = ()
    """As that contract has them; empty where there is none, or no labels."""

    @property
    def schema(self) -> Schema:
        """What a node's data must be like."""
        return Schema(self.shape, self.classes, self.sensitive_classes, self.contract)

    @property
    def drawn_classes(self) -> int:
        """Classes of the generator: one, or the records'; or pairs (class x values + value)."""
        own = 1 if self.classless else self.classes
        return own * (self.sensitive_classes if self.conditioned else 1)


def enrol(
    grid: Grid,
    config: Config,
    revoked: tuple[Collection[int], Collection[int]] = ((), ()),
    objection: Callable[[EnrolledNode], str | None] = lambda node: None,
) -> Federation:
    """Wait for the declared nodes, ask each what it hosts, and take those that fit.

    One that does not fit is turned away, with a reason in the log, and the others go on: what is
    fitting follows from the run's own settings and its contract. No node has a say in it but as one
    of many, where the run names no contract.

    Args:
        grid: the transport.
        config: the run's.
        revoked: numbers of users, and positions of nodes, that take part in nothing any more.
        objection: why a population's registry turns a node away, if it does.

    Raises:
        EnrolmentError: too few nodes or users that fit are there by ``membership.patience``; says
            which nodes were turned away and why. Or no schema is that of most nodes.
    """
    nodes = wait_for_nodes(grid, config.data.nodes, config.membership.patience)
    described = describe(grid, nodes, config.rounds.deadline)
    failed = set(nodes) - {node.node_id for node in described}
    away = _objections(described, revoked[1], objection)
    fitting = [node for node in described if node not in away]
    if fitting:
        schema = agree_schema([node.told for node in fitting], config)
        away |= _misfits(fitting, schema, config)
    for node, why in away.items():
        logger.warning("%s is turned away: %s", node.name, why)
    taken = [node for node in fitting if node not in away]
    if not taken:
        raise EnrolmentError(
            _without("no node can take part: see this log and the nodes' own", away, failed)
        )
    roster = roster_of(fit(taken, config, revoked[0]), revoked[0])
    if lacking := lacks(roster, config, ENOUGH if len(nodes) >= config.data.nodes else START):
        raise EnrolmentError(_without(lacking, away, failed))
    keep_places({node.node_id: node.partition for node in taken})
    name = data_name([node.told for node in taken], config)
    filter_ = config.privatizer
    return Federation(
        roster,
        schema.shape,
        schema.classes,
        schema.sensitive_classes,
        filter_.pairs,
        config.data.unlabelled,
        tuple(taken),
        name,
        schema.contract,
        class_names_of(config),
    )


def _objections(
    described: Iterable[EnrolledNode],
    revoked: Collection[int],
    objection: Callable[[EnrolledNode], str | None],
) -> dict[EnrolledNode, str]:
    """Why nodes take no part that are revoked, are objected to, or claim one position."""
    away = {}
    for node in described:
        why = "it was revoked" if node.partition in revoked else objection(node)
        why = why or place_of_another(node)
        if why is not None:
            away[node] = why
    return away | claimed_twice(node for node in described if node not in away)


def place_of_another(node: EnrolledNode) -> str | None:
    """Why a node takes no part that claims the position of another key; None where it is free."""
    owner = owner_of(node.partition, node.node_id)
    if not owner:
        return None
    return f"its partition-id is that of {owner}: give it one of its own"


def claimed_twice(nodes: Iterable[EnrolledNode]) -> dict[EnrolledNode, str]:
    """Why nodes that claim one position take no part: none, as nobody can tell whose it is."""
    found = tuple(nodes)
    claims = Counter(node.partition for node in found)
    return {
        node: f"{claims[node.partition]} nodes claim its partition-id: give each one of its own"
        for node in found
        if claims[node.partition] > 1
    }


def _misfits(
    nodes: Sequence[EnrolledNode], schema: Schema, config: Config
) -> dict[EnrolledNode, str]:
    """Why nodes take no part whose data do not fit, or that are more than were declared."""
    away = {node: why for node in nodes if (why := misfit(node.told, schema, config))}
    beyond = [node for node in nodes if node not in away][config.data.nodes :]
    bound = f"data.nodes = {config.data.nodes} is a bound, and as many are there"
    return away | dict.fromkeys(beyond, bound)


def _without(lacking: str, away: Mapping[EnrolledNode, str], failed: Collection[int]) -> str:
    """What is lacking, with the nodes that are not there for another reason than being offline."""
    named = names_of(failed) or f"{len(failed)} more"
    see = f"; {named} failed or silent though online: see the log there" if failed else ""
    turned = "".join(f"; {node.name} was turned away: {why}" for node, why in away.items())
    return lacking + see + turned


def most_users(config: Config) -> int:
    """Users of one node that take part at most: by declaration, and so that sums can be trimmed."""
    users = config.data.users
    most = max(1, int(config.membership.largest_node * users))
    return min(most, config.aggregation.trimmed(users) or most)


def fit(
    nodes: Iterable[EnrolledNode],
    config: Config,
    revoked: Collection[int] = (),
    held: Mapping[int, int] | None = None,
) -> tuple[EnrolledNode, ...]:
    """The nodes with as many of their users, the first on their lists, as there are places for.

    Who has a place keeps it, so that one who joins above a bound costs nobody else a part in a sum.

    Args:
        nodes: as they described themselves.
        config: the run's, which declares how many users there are at most.
        revoked: numbers of users, who need no place.
        held: how many users of a node have a place already, by the node's position.
    """
    ordered = tuple(sorted(nodes, key=lambda node: node.partition))
    roster, most = roster_of(ordered, revoked), most_users(config)
    active = roster.active_each
    has = [(held or {}).get(node.partition, 0) for node in ordered]
    places = share_places([min(users, most) for users in active], has, config.data.users)
    fitted = tuple(
        node if users == given else _first_users(node, given, left_out)
        for node, users, given, left_out in zip(
            ordered, active, places, roster.left_out, strict=True
        )
    )
    # whom a node has no place for counts on the next that names the same person, and needs one
    return ordered if fitted == ordered else fit(fitted, config, revoked, held)


def _first_users(node: EnrolledNode, places: int, left_out: Collection[int]) -> EnrolledNode:
    """A node with the first of its users, as many as places but for those who need none."""
    count = places
    if left_out:  # then it names them all, and they are no more than a message holds
        needing = np.setdiff1d(np.arange(node.told.users), sorted(left_out))[:places]
        count = int(needing[-1]) + 1 if len(needing) else 0
    members = node.told.members[: count * MEMBER_BYTES]
    return replace(node, told=node.told.model_copy(update={"users": count, "members": members}))


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
    )


def doubles(nodes: Iterable[EnrolledNode]) -> int:
    """How many numbers more than one node names."""
    named = np.concatenate([np.zeros(0, np.int64), *(node.packed_numbers for node in nodes)])
    return len(named) - len(np.unique(named))
