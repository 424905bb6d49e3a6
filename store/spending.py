"""What an officer decides: from which cost on somebody is asked, and each request to spend.

People are named by a text, the identity of their population or the id of the run that is one by
itself. Nothing here spends: a request that was approved is carried out once, by whoever takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from fedlens.accountant.ledger.officer import needs_approval
from fedlens.accountant.wording import shown
from fedlens.store.accounts import log_entry
from fedlens.store.checks import check_choice, check_text, require
from fedlens.store.errors import StoreError
from fedlens.store.records import utc_now
from fedlens.store.rows import to_record, to_values
from fedlens.store.schema_spending import SpendingRequestTable, SpendingRuleTable
from fedlens.store.transactions import Transactions

RequestStatus = Literal["waiting", "approved", "declined", "being asked", "answered", "failed"]
OPEN: tuple[RequestStatus, ...] = ("waiting", "approved", "being asked")
"""Of requests of which something may still come."""
WARN_AT = 0.8
"""Share of a budget at which is warned, where nobody set another."""
LONGEST_WORDS = 1000


@dataclass(frozen=True, kw_only=True)
class SpendingRule:
    """From when on an officer is asked, and when is warned."""

    approve_above: float | None = None
    """DP ε of one request above which an officer approves it first; ``None``: never asked."""
    warn_at: float = WARN_AT
    """Share of the budget at which is warned; requests that would pass it wait too, where an
    officer is asked at all."""
    author: str = ""
    """Who set it; empty where nobody did."""
    created_at: datetime | None = None

    def __post_init__(self) -> None:
        above, at = self.approve_above, self.warn_at
        good = above is None or 0 <= above < float("inf")
        require(good, "approve_above", above, "give a finite ε ≥ 0, or None")
        require(0 < at <= 1, "warn_at", at, "give a share in (0, 1]")

    def needs_approval(self, epsilon: float, used_after: float | None) -> bool:
        """Whether an officer is asked first.

        Args:
            epsilon: DP ε of the request by itself.
            used_after: share of the budget that would be used with it; None without a budget.
        """
        return needs_approval(self.approve_above, self.warn_at, epsilon, used_after)


@dataclass(frozen=True, kw_only=True)
class SpendingRequest:
    """A probe that somebody wants to ask. It is asked at exactly this price, or not at all."""

    people: str
    """Whose budget pays."""
    run_id: str
    """Whose users are asked."""
    probe: str
    """The question as it is written."""
    asked_epsilon: float
    """DP ε that is offered for it: with δ this names the question."""
    epsilon: float
    """DP ε of it by itself, at most what is offered."""
    delta: float
    why: str = ""
    """What it is wanted for, in its author's words."""

    def __post_init__(self) -> None:
        check_text(self, "people", "run_id", "probe")
        for name in ("asked_epsilon", "epsilon"):
            value = getattr(self, name)
            require(0 < value < float("inf"), name, value, "give a finite ε above 0")
        require(0 < self.delta < 1, "delta", self.delta, "δ is a probability")
        _check_length("why", self.why)


@dataclass(frozen=True, kw_only=True)
class StoredRequest(SpendingRequest):
    """A request with what became of it."""

    request_id: int
    author: str
    status: RequestStatus
    decided_by: str | None
    note: str
    """Why it was declined, or what went wrong."""
    created_at: datetime
    changed_at: datetime

    @property
    def open(self) -> bool:
        """Whether something may still come of it."""
        return self.status in OPEN


class SpendingMethods(Transactions):
    """Rules and requests."""

    def spending_rule(self, people: str) -> SpendingRule:
        """What holds for some people; where nobody said, no officer is asked."""
        with self._reading() as session:
            newest = select(SpendingRuleTable).filter_by(people=people)
            row = session.scalars(newest.order_by(SpendingRuleTable.rule_id.desc())).first()
            return SpendingRule() if row is None else to_record(SpendingRule, row)

    def set_spending_rule(
        self, people: str, approve_above: float | None, warn_at: float, *, author: str
    ) -> None:
        """Have another rule from now on; those before stay on record.

        Raises:
            StoreError: a number out of range.
        """
        rule = SpendingRule(approve_above=approve_above, warn_at=warn_at)
        values = to_values(rule, "author", "created_at")
        with self._writing() as session:
            row = SpendingRuleTable(people=people, author=author, created_at=utc_now(), **values)
            session.add(row)
            above = "never" if approve_above is None else f"above ε = {approve_above:g}"
            log_entry(
                session,
                author,
                "spending rule set",
                f"ask {above}, warn at {warn_at:.0%}: {people}",
            )

    def request_spending(self, record: SpendingRequest, *, author: str) -> int:
        """Ask an officer; the same question that is open already is not asked twice. Its id."""
        with self._writing() as session:
            there = select(SpendingRequestTable).filter_by(run_id=record.run_id, probe=record.probe)
            open_ = there.where(SpendingRequestTable.status.in_(OPEN))
            found = session.scalars(open_).first()
            if found is not None:
                return found.request_id
            now = utc_now()
            row = SpendingRequestTable(
                **to_values(record),
                author=author,
                status="waiting",
                decided_by=None,
                note="",
                created_at=now,
                changed_at=now,
            )
            session.add(row)
            session.flush()
            log_entry(session, author, "spending requested", _named(row))
            return row.request_id

    def decide_request(
        self, request_id: int, *, approved: bool, author: str, note: str = ""
    ) -> StoredRequest:
        """Approve a request that waits, or decline it.

        Raises:
            StoreError: it does not wait (any more), is the author's own, or is declined without a
                reason.
        """
        require(approved or bool(note.strip()), "note", note, "say why it is declined")
        _check_length("note", note)
        with self._writing() as session:
            row = _required(session, request_id)
            own = "nobody approves what they asked for themselves"
            require(row.author != author, "author", author, own)
            _move(session, row, "waiting", "approved" if approved else "declined")
            row.decided_by, row.note = author, note.strip()
            done = "spending approved" if approved else "spending declined"
            log_entry(session, author, done, _named(row))
            return to_record(StoredRequest, row)

    def take_request(self, request_id: int) -> StoredRequest:
        """Carry out an approved request: only the first who takes it may.

        Raises:
            StoreError: it is not approved, or was taken.
        """
        with self._writing() as session:
            row = _required(session, request_id)
            _move(session, row, "approved", "being asked")
            return to_record(StoredRequest, row)

    def close_request(self, request_id: int, *, answered: bool, note: str = "") -> None:
        """Say what came of a request that was taken."""
        with self._writing() as session:
            row = _required(session, request_id)
            _move(session, row, "being asked", "answered" if answered else "failed")
            row.note = note[:LONGEST_WORDS]

    def requests(
        self,
        *,
        people: str | None = None,
        run_id: str | None = None,
        status: RequestStatus | None = None,
    ) -> list[StoredRequest]:
        """Requests, the last one made first."""
        if status is not None:
            check_choice("status", status, RequestStatus)
        given = {"people": people, "run_id": run_id, "status": status}
        wanted = {name: value for name, value in given.items() if value is not None}
        with self._reading() as session:
            rows = select(SpendingRequestTable).filter_by(**wanted)
            newest = rows.order_by(SpendingRequestTable.request_id.desc())
            return [to_record(StoredRequest, row) for row in session.scalars(newest)]


def _required(session: Session, request_id: int) -> SpendingRequestTable:
    row = session.get(SpendingRequestTable, request_id)
    if row is None:
        raise StoreError(f"request_id = {request_id}: the store has no such request")
    return row


def _move(
    session: Session, row: SpendingRequestTable, before: RequestStatus, after: RequestStatus
) -> None:
    """Take a request from one status to the next, unless somebody else did so first."""
    here = SpendingRequestTable
    step = update(here).where(here.request_id == row.request_id, here.status == before)
    done = session.execute(step.values(status=after, changed_at=utc_now()))
    session.refresh(row)
    if not done.rowcount:  # type: ignore[attr-defined]
        raise StoreError(f"request {row.request_id} is {row.status}, not {before}, by now")


def _named(row: SpendingRequestTable) -> str:
    return f"{row.probe} of run {row.run_id}, ε = {shown(row.epsilon)}"


def _check_length(name: str, words: str) -> None:
    most = f"give at most {LONGEST_WORDS:,}"
    require(len(words) <= LONGEST_WORDS, name, f"{len(words)} characters", most)
