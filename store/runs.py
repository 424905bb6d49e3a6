"""Runs, rounds, the mirror of the ledger, releases and checkpoints.

The store's law is held here and in ``samples``: nothing derived from data goes in before the
ledger row that pays for it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from fedlens.store.checks import check_choice
from fedlens.store.errors import StoreError
from fedlens.store.members import record_presence
from fedlens.store.presence import PresenceRow
from fedlens.store.records import (
    CheckpointRow,
    LedgerRow,
    ReleaseRow,
    RoundRecord,
    RunRecord,
    RunStatus,
)
from fedlens.store.rows import (
    exists_where,
    insert_once,
    insert_or_replace,
    records_of_run,
    require_run,
    require_same,
    to_record,
    to_values,
)
from fedlens.store.schema import (
    BatchTable,
    CheckpointTable,
    LedgerTable,
    ReleaseTable,
    RoundTable,
    RunTable,
)
from fedlens.store.transactions import Transactions


def _record_ledger(session: Session, row: LedgerRow) -> None:
    """Mirror a ledger entry; the same entry again changes nothing."""
    require_run(session, row.run_id)
    if not insert_once(session, LedgerTable, to_values(row)):
        there = ledger_row(session, row.run_id, row.index)
        require_same(f"ledger entry {row.index}", there, row, "entry_hash", "round")


def ledger_row(session: Session, run_id: str, index: int) -> LedgerTable:
    """The mirrored entry that pays for something about to be stored.

    Raises:
        StoreError: if it is not there.
    """
    require_run(session, run_id)
    row = session.get(LedgerTable, (run_id, index))
    if row is None:
        raise StoreError(
            f"ledger_index = {index}: run {run_id!r} has no such ledger row, and nothing derived "
            "from data is stored before it; call record_progress first"
        )
    return row


def _require_ledgered_round(
    session: Session, run_id: str, round_: int, ledgered: Container[tuple[str, int]] = ()
) -> None:
    """Refuse what a round yields before a ledger row of that round.

    Args:
        session: of the transaction.
        run_id: the round's run.
        round_: the round.
        ledgered: rounds known to have one: this transaction wrote it or found it.

    Raises:
        StoreError: if there is none.
    """
    if (run_id, round_) in ledgered:
        return
    require_run(session, run_id)
    if not exists_where(session, LedgerTable.run_id == run_id, LedgerTable.round == round_):
        raise StoreError(
            f"round = {round_}: run {run_id!r} has no ledger row of this round, and nothing "
            "derived from data is stored before it; call record_progress first"
        )


def _record_release(session: Session, row: ReleaseRow, paid: Mapping[tuple[str, int], int]) -> None:
    """Store what became of a release in place of what is there.

    ``paid`` is as in `record_progress`.
    """
    round_ = paid.get((row.run_id, row.ledger_index))
    if round_ is None:
        round_ = ledger_row(session, row.run_id, row.ledger_index).round
    if round_ != row.round:
        raise StoreError(
            f"round = {row.round}: ledger entry {row.ledger_index} of run {row.run_id!r} is of "
            f"round {round_}"
        )
    insert_or_replace(session, ReleaseTable, to_values(row))


class RunMethods(Transactions):
    """Runs with their rounds, ledger rows, releases and checkpoints."""

    def create_run(self, record: RunRecord) -> None:
        """Store a run. The same ``run_id`` with the same configuration again changes nothing.

        Raises:
            StoreError: if the run is there with another configuration.
        """
        with self._writing() as session:
            if not insert_once(session, RunTable, to_values(record)):
                there = require_run(session, record.run_id)
                require_same(f"run {record.run_id!r}", there, record, "config_sha256")

    def set_run_status(
        self,
        run_id: str,
        status: RunStatus,
        stop_reason: str | None = None,
        guarantee: str | None = None,
    ) -> None:
        """Set a run's status; ``stop_reason``, and ``guarantee`` if given, replace those there."""
        with self._writing() as session:
            check_choice("status", status, RunStatus)
            require_run(session, run_id)
            values = {"status": status, "stop_reason": stop_reason}
            if guarantee is not None:
                values["guarantee"] = guarantee
            session.execute(update(RunTable).where(RunTable.run_id == run_id).values(values))

    def runs(self, *, with_samples: bool = False) -> list[RunRecord]:
        """All runs, those of the last day first; of one day by name, the last first.

        Args:
            with_samples: only those that have a batch of samples.
        """
        order = (RunTable.created_at.desc(), RunTable.name.desc(), RunTable.run_id)
        wanted = select(RunTable).order_by(*order)
        if with_samples:
            wanted = wanted.where(RunTable.run_id.in_(select(BatchTable.run_id)))
        with self._reading() as session:
            return [to_record(RunRecord, row) for row in session.scalars(wanted)]

    def has_runs(self) -> bool:
        """Whether there is a run at all."""
        with self._reading() as session:
            return session.scalar(select(RunTable.run_id).limit(1)) is not None

    def run(self, run_id: str) -> RunRecord:
        """One run."""
        with self._reading() as session:
            return to_record(RunRecord, require_run(session, run_id))

    def record_progress(
        self,
        ledger: Iterable[LedgerRow] = (),
        releases: Iterable[ReleaseRow] = (),
        rounds: Iterable[RoundRecord] = (),
        presence: Iterable[PresenceRow] = (),
    ) -> None:
        """Store what rounds left behind, in one transaction: a run waits for the disk once a round.

        Args:
            ledger: entries of the ledger file. The same entry again changes nothing.
            releases: what became of entries, in place of what is there.
            rounds: their metrics, in place of those there.
            presence: which nodes they had, in place of what is there.

        Raises:
            StoreError: another entry has an index, a release or a round has no ledger entry, or
                a release is of another round than its entry; nothing is stored then.
        """
        ledger = tuple(ledger)
        with self._writing() as session:
            # held until the end: a session asks the database again for what is not in use
            runs = [require_run(session, run_id) for run_id in {one.run_id for one in ledger}]
            for entry in ledger:
                _record_ledger(session, entry)
            # the round that each of these entries pays for: what it has is not asked for again
            paid = {(one.run_id, one.index): one.round for one in ledger}
            ledgered = {(one.run_id, one.round) for one in ledger}
            for release in releases:
                _record_release(session, release, paid)
            for record in rounds:
                _require_ledgered_round(session, record.run_id, record.round, ledgered)
                insert_or_replace(session, RoundTable, to_values(record))
            for row in presence:
                _require_ledgered_round(session, row.run_id, row.round, ledgered)
                record_presence(session, row)
            del runs

    def ledger(self, run_id: str) -> list[LedgerRow]:
        """A run's mirrored ledger entries, by index."""
        with self._reading() as session:
            return records_of_run(session, LedgerRow, LedgerTable, run_id, LedgerTable.index)

    def rounds(self, run_id: str) -> list[RoundRecord]:
        """A run's rounds, in order."""
        with self._reading() as session:
            return records_of_run(session, RoundRecord, RoundTable, run_id, RoundTable.round)

    def releases(self, run_id: str) -> list[ReleaseRow]:
        """A run's releases, by ledger index."""
        with self._reading() as session:
            return records_of_run(
                session, ReleaseRow, ReleaseTable, run_id, ReleaseTable.ledger_index
            )

    def record_checkpoint(self, row: CheckpointRow) -> None:
        """Store where a round's checkpoint lies, in place of what is there.

        Raises:
            StoreError: if the ledger has no row of this round.
        """
        with self._writing() as session:
            _require_ledgered_round(session, row.run_id, row.round)
            insert_or_replace(session, CheckpointTable, to_values(row))

    def checkpoints(self, run_id: str) -> list[CheckpointRow]:
        """A run's checkpoints, by round."""
        with self._reading() as session:
            return records_of_run(
                session, CheckpointRow, CheckpointTable, run_id, CheckpointTable.round
            )
