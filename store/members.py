"""The registry of a population: its nodes and, by keyed numbers, its users. No names, no times.

A user's number comes from the node under a key that the server does not have. Rows are never
deleted: who left has the day on which that was noticed, who was revoked the day of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from fedlens.foundation.dates import today
from fedlens.store.checks import MAX_LONG, check_whole
from fedlens.store.errors import StoreError
from fedlens.store.presence import Coverage, PresenceRow
from fedlens.store.rows import insert_or_replace, records_of_run, require_run, to_record
from fedlens.store.schema_members import MemberNodeTable, MemberTable, PresenceTable
from fedlens.store.transactions import Transactions


@dataclass(frozen=True)
class NodeRoster:
    """A node as it described itself."""

    node: int
    """Its position among the nodes (partition-id)."""
    users: int
    """Users enrolled on it."""
    numbers: Sequence[int] = ()
    """Their keyed numbers; none where the node tells none."""
    whole: bool = True
    """Whether that is all who are enrolled there, and no slice: who is not named has left."""

    def __post_init__(self) -> None:
        check_whole(self, "node")
        check_whole(self, "users", most=MAX_LONG)


@dataclass(frozen=True, kw_only=True)
class RegisteredNode:
    """A node of a population. Key: ``(population, node)``."""

    population: str
    """Identity of the population: hash of its ledger's header."""
    node: int
    users: int
    """Users enrolled on it, when it was seen last."""
    since: date
    seen: date
    """The last day on which it described itself to a run."""
    revoked: date | None


@dataclass(frozen=True, kw_only=True)
class RegisteredUser:
    """A user at a node. Key: ``(population, number, node)``."""

    population: str
    number: int
    """Keyed: not the user's name, and without the nodes' key no way back to it."""
    node: int
    since: date
    until: date | None
    """The day on which the node no longer named the user; None while it does."""
    revoked: date | None


class MemberMethods(Transactions):
    """Populations' nodes and users, and which nodes a run's rounds had."""

    def note_nodes(self, population: str, rosters: Iterable[NodeRoster]) -> None:
        """Take in how nodes describe themselves now: who is new, who is back, who left."""
        with self._writing() as session:
            for roster in rosters:
                _note_node(session, population, roster)
                if roster.numbers:
                    _note_members(session, population, roster)

    def member_nodes(self, population: str) -> list[RegisteredNode]:
        """A population's nodes, by position."""
        with self._reading() as session:
            rows = session.scalars(
                select(MemberNodeTable)
                .filter_by(population=population)
                .order_by(MemberNodeTable.node)
            )
            return [to_record(RegisteredNode, row) for row in rows]

    def members(self, population: str, node: int | None = None) -> list[RegisteredUser]:
        """A population's users, or those of one node, by number; once for each of their nodes."""
        wanted = {"population": population, **({} if node is None else {"node": node})}
        with self._reading() as session:
            order = (MemberTable.number, MemberTable.node)
            rows = session.scalars(select(MemberTable).filter_by(**wanted).order_by(*order))
            return [to_record(RegisteredUser, row) for row in rows]

    def revoked(self, population: str) -> tuple[frozenset[int], frozenset[int]]:
        """Numbers of users, and positions of nodes, that take part in nothing any more."""
        with self._reading() as session:
            people, places = (
                session.scalars(
                    select(key).where(table.population == population, table.revoked.is_not(None))
                )
                for table, key in (
                    (MemberTable, MemberTable.number),
                    (MemberNodeTable, MemberNodeTable.node),
                )
            )
            return frozenset(people), frozenset(places)

    def hides_revoked(self, population: str, roster: NodeRoster) -> bool:
        """Whether a node named a user who is revoked now, and no longer says who is who.

        It then names no one, or all by other numbers than before. One who has left is no such case:
        the others are named as they were.
        """
        here = (MemberTable.population == population, MemberTable.node == roster.node)
        with self._reading() as session:
            gone = select(MemberTable.node).where(*here, MemberTable.revoked.is_not(None)).limit(1)
            if not roster.users or session.execute(gone).first() is None:
                return False
            if not roster.numbers:
                return True
            known = session.scalars(select(MemberTable.number).where(*here)).all()
            return roster.whole and set(roster.numbers).isdisjoint(known)

    def set_revoked(
        self, population: str, *, number: int | None = None, node: int | None = None, on: bool
    ) -> bool:
        """Revoke a user, at whichever nodes, or a node; or, with ``on`` False, take that back.

        Returns:
            Whether the user is enrolled at some node now, as far as is known; True of a node.

        Raises:
            StoreError: the population knows no such user or node.
        """
        table = MemberNodeTable if number is None else MemberTable
        key = MemberNodeTable.node == node if number is None else MemberTable.number == number
        found = (table.population == population, key)
        with self._writing() as session:
            if session.execute(select(table.node).where(*found).limit(1)).first() is None:
                named = f"node = {node}" if number is None else f"user = {number}"
                raise StoreError(f"{named}: the population knows none; see `population members`")
            if on:
                session.execute(
                    update(table).where(*found, table.revoked.is_(None)).values(revoked=today())
                )
            else:
                session.execute(update(table).where(*found).values(revoked=None))
            here = select(table.node).where(*found, MemberTable.until.is_(None)).limit(1)
            return number is None or session.execute(here).first() is not None

    def presence(self, run_id: str) -> Coverage:
        """Which nodes a run's rounds had."""
        with self._reading() as session:
            require_run(session, run_id)
            rows = records_of_run(session, PresenceRow, PresenceTable, run_id, PresenceTable.round)
            return Coverage(tuple(rows))


def record_presence(session: Session, row: PresenceRow) -> None:
    """Store which nodes a round had, in place of what is there."""
    values = {name: getattr(row, name) for name in PresenceRow.__dataclass_fields__}
    insert_or_replace(session, PresenceTable, {**values, "answered": list(row.answered)})


def _note_node(session: Session, population: str, roster: NodeRoster) -> None:
    known = session.get(MemberNodeTable, (population, roster.node))
    if known is None:
        session.add(
            MemberNodeTable(
                population=population,
                node=roster.node,
                users=roster.users,
                since=today(),
                seen=today(),
                revoked=None,
            )
        )
        return
    known.seen = today()
    known.users = roster.users if roster.whole else max(known.users, roster.users)


def _note_members(session: Session, population: str, roster: NodeRoster) -> None:
    here = (MemberTable.population == population, MemberTable.node == roster.node)
    rows = session.execute(select(MemberTable.number, MemberTable.until).where(*here)).all()
    known: dict[int, date | None] = {row.number: row.until for row in rows}
    now = set(roster.numbers)
    new = [
        {"population": population, "number": number, "node": roster.node, "since": today()}
        for number in sorted(now - known.keys())
    ]
    for start in range(0, len(new), _AT_ONCE):
        session.execute(insert(MemberTable), new[start : start + _AT_ONCE])
    _set_until(session, here, [n for n in known.keys() & now if known[n] is not None], None)
    gone = known.keys() - now if roster.whole else set[int]()
    _set_until(session, here, [n for n in gone if known[n] is None], today())
    _keep_revoked(session, population, [row["number"] for row in new])


def _keep_revoked(session: Session, population: str, numbers: Sequence[object]) -> None:
    """A user who was revoked at one node is revoked at another that names the number later."""
    for part in _parts(numbers):
        found = (MemberTable.population == population, MemberTable.number.in_(part))
        revoked = select(MemberTable.number, MemberTable.revoked).where(
            *found, MemberTable.revoked.is_not(None)
        )
        for number, day in session.execute(revoked).all():
            session.execute(
                update(MemberTable)
                .where(MemberTable.population == population, MemberTable.number == number)
                .values(revoked=day)
            )


_AT_ONCE = 500
"""Rows of a statement: SQLite limits how many values one may have."""


def _set_until(
    session: Session, here: tuple[object, ...], numbers: list[int], day: date | None
) -> None:
    for part in _parts(numbers):
        session.execute(
            update(MemberTable)
            .where(*here, MemberTable.number.in_(part))  # type: ignore[arg-type]
            .values(until=day)
        )


def _parts(numbers: Sequence[object]) -> Iterable[Sequence[object]]:
    for start in range(0, len(numbers), _AT_ONCE):
        yield numbers[start : start + _AT_ONCE]
