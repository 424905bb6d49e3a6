"""What a list of runs shows of each, asked for all runs at once."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from fedlens.store.records import RoundRecord
from fedlens.store.rows import to_record
from fedlens.store.schema import AuditTable, BatchTable, RoundTable
from fedlens.store.transactions import Transactions
from fedlens.store.worth import Worth, worth_of


@dataclass(frozen=True)
class RunGlance:
    """A run in short."""

    last: RoundRecord | None
    """Its latest round, with what was spent until then; ``None`` before the first."""
    batches: int
    """How many batches of samples it has."""
    worth: Worth
    """What its samples are good for, by the last batch that could be judged."""
    alarm: bool
    """Whether some audit of it raised an alarm."""


class GlanceMethods(Transactions):
    """Runs in short."""

    def glances(self) -> dict[str, RunGlance]:
        """Each run that has a round, a batch or an alarm, by id.

        As many questions to the database for 1,000 runs as for one.
        """
        with self._reading() as session:
            last, batches = _last_rounds(session), _batches(session)
            alarmed = select(AuditTable.run_id).where(AuditTable.verdict == "alarm")
            alarms = set(session.scalars(alarmed))
        none = 0, worth_of({})
        return {
            run_id: RunGlance(last.get(run_id), *batches.get(run_id, none), run_id in alarms)
            for run_id in {*last, *batches, *alarms}
        }


def _last_rounds(session: Session) -> dict[str, RoundRecord]:
    highest = select(RoundTable.run_id, func.max(RoundTable.round).label("round"))
    last = highest.group_by(RoundTable.run_id).subquery()
    same = and_(RoundTable.run_id == last.c.run_id, RoundTable.round == last.c.round)
    rows = session.scalars(select(RoundTable).join(last, same))
    return {row.run_id: to_record(RoundRecord, row) for row in rows}


def _batches(session: Session) -> dict[str, tuple[int, Worth]]:
    found: dict[str, tuple[int, Worth]] = {}
    asked = select(BatchTable.run_id, BatchTable.fidelity).order_by(BatchTable.batch_id)
    for run_id, fidelity in session.execute(asked):
        count, worth = found.get(run_id, (0, worth_of({})))
        found[run_id] = count + 1, worth_of(fidelity) if fidelity else worth
    return found
