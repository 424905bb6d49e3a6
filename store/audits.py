"""What audits of a run found. Rows are added and never change: an alarm stays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import date

from fedlens.accountant.audit.finding import AuditKind, AuditVerdict
from fedlens.foundation.dates import today
from fedlens.store.checks import check_choice, check_date, check_text, require
from fedlens.store.rows import records_of_run, require_run, to_values
from fedlens.store.schema import AuditTable
from fedlens.store.transactions import Transactions


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One audit's outcome. No key: the same audit may be repeated.

    Of membership inference nothing is stored: even whether it raised an alarm was computed from
    users' records, without noise.
    """

    run_id: str
    kind: AuditKind
    at: date = field(default_factory=today)
    """The day, UTC."""
    claimed_epsilon: float
    """Upper bound by the accountant for the schedule that was audited, at ``delta``."""
    delta: float
    lower_bound: float | None = None
    """ε that the mechanism exceeds, with the confidence that was asked for."""
    estimate: float | None = None
    """ε under a model; no bound. ``None`` too where it is infinite."""
    cap: float | None = None
    """The largest ε that an alarm could have been raised at; ``None`` where nothing limits it."""
    verdict: AuditVerdict
    words: str
    """What was audited and what it means."""

    def __post_init__(self) -> None:
        check_text(self, "run_id", "words")
        check_choice("kind", self.kind, AuditKind)
        check_choice("verdict", self.verdict, AuditVerdict)
        check_date("at", self.at)
        claimed = self.claimed_epsilon
        require(claimed >= 0, "claimed_epsilon", claimed, "ε is a number ≥ 0, or inf")
        require(0 < self.delta < 1, "delta", self.delta, "δ is a probability")
        figures = {name: getattr(self, name) for name in ("lower_bound", "estimate", "cap")}
        for name, value in figures.items():
            finite = value is None or (math.isfinite(value) and value >= 0)
            require(finite, name, value, "give a finite ε ≥ 0, or None")
        public = self.kind != "membership"
        require(public, "kind", self.kind, "what it finds is of records, and stays in audit.json")


class AuditMethods(Transactions):
    """What audits of a run found."""

    def record_audit(self, record: AuditRecord) -> None:
        """Add what an audit found; what others found before stays."""
        with self._writing() as session:
            require_run(session, record.run_id)
            session.add(AuditTable(**to_values(record)))

    def audits(self, run_id: str) -> list[AuditRecord]:
        """A run's audits, in the order stored."""
        with self._reading() as session:
            require_run(session, run_id)
            return records_of_run(session, AuditRecord, AuditTable, run_id, AuditTable.audit_id)
