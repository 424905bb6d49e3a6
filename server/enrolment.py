"""Which nodes and users take part: asked once, checked against what the run declares."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from client.messages import DESCRIBE, Description, ReplyError
from models.shapes import ImageShape
from server.agreed import EnrolmentError, check_agreed, data_name
from server.config.privatizer import FilterConfig
from server.config.tree import Config
from server.exchange import exchange, wait_for_nodes
from server.sampling import Roster


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
    data_name: str = ""
    """What the run's data are called: by the simulation, or as the federation declares."""

    @property
    def drawn_classes(self) -> int:
        """Classes of the generator: the records', or pairs (class x values + value)."""
        return self.classes * (self.sensitive_classes if self.conditioned else 1)


def enrol(grid: Grid, config: Config) -> Federation:
    """Wait for the declared nodes, ask each what it hosts, and check that it adds up.

    Raises:
        EnrolmentError: nodes are missing or failed, disagree on the data's schema, share a
            partition, host another number of users than ``data.users``, or do not all know the
            same sensitive attribute where one is to be hidden.
    """
    wanted = config.data.nodes
    nodes = wait_for_nodes(grid, wanted, config.rounds.deadline)
    if len(nodes) != wanted:
        raise EnrolmentError(f"{len(nodes)} nodes are online, data.nodes declares {wanted}")
    question = RecordDict({"config": ConfigRecord({"ask": "describe"})})
    replies = exchange(
        grid,
        dict.fromkeys(nodes, question),
        message_type=DESCRIBE,
        group="enrolment",
        deadline=config.rounds.deadline,
    )
    try:
        described = {node: Description.from_record(reply) for node, reply in replies.items()}
    except ReplyError as error:
        raise EnrolmentError(f"a node cannot take part: {error}; see that node's own log") from None
    if len(described) != wanted:
        raise EnrolmentError(f"{len(described)} of {wanted} nodes answered; see the silent nodes")
    return _agreed(described, config)


def _agreed(described: dict[int, Description], config: Config) -> Federation:
    ordered = sorted(described.items(), key=lambda item: item[1].partition)
    partitions = [description.partition for _, description in ordered]
    if len(set(partitions)) != len(partitions):
        raise EnrolmentError(f"two nodes claim the same partition-id among {partitions}")
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
    roster = Roster(tuple(n for n, _ in ordered), tuple(d.users for _, d in ordered))
    if roster.total != config.data.users:
        raise EnrolmentError(
            f"the nodes enrol {roster.total} users, data.users declares {config.data.users}; "
            "set data.users to the number enrolled"
        )
    shape, classes = schemas.pop()
    filter_, sensitive_classes = config.privatizer, 0
    if isinstance(filter_, FilterConfig) and filter_.reads_sensitive:
        described_ones = [description for _, description in ordered]
        sensitive_classes = _agreed_sensitive(described_ones, filter_.sensitive_attribute)
    name = data_name([description for _, description in ordered], config)
    return Federation(roster, shape, classes, sensitive_classes, filter_.pairs, name)


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
