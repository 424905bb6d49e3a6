"""Audits: trying to catch the code leaking more than the accountant says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedlens.api.presets import preset_config
from fedlens.api.runs import Run
from fedlens.foundation.errors import WrongUse
from fedlens.simulations.audits.audit import AuditPlan, run_audits
from fedlens.simulations.audits.report import (
    earlier_reports,
    report,
    store_findings,
    write_report,
)
from fedlens.simulations.audits.schedule import NothingToAudit, Schedule

if TYPE_CHECKING:
    from fedlens.accountant.audit.finding import Finding

Observe = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class AuditReport:
    """What was audited and found.

    Attributes:
        schedules: the mechanism of each task that was carried out.
        plan: which audits, how thoroughly.
        findings: one an audit of a task, which it names; a lower bound on ε above the claimed one
            is an alarm.
        path: the file that the report was added to, for the run's operator alone; None where a
            preset was audited.
    """

    schedules: tuple[Schedule, ...]
    plan: AuditPlan
    findings: tuple[Finding, ...]
    path: Path | None = None

    @property
    def alarm(self) -> bool:
        """Whether what is released contradicts the claim."""
        return any(finding.verdict == "alarm" for finding in self.findings)

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything as JSON values, as it is written to the file."""
        return report(self.schedules, self.plan, self.findings)


def audit(
    subject: Run | str,
    *,
    kind: str = "all",
    task: str = "",
    canaries: int = 1000,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    confidence: float = 0.95,
    progress: Observe | None = None,
) -> AuditReport:
    """Carry a mechanism out with made-up users (canaries) and try to show a larger ε than claimed.

    Finding nothing proves nothing: each audit says what it could have shown at most. Of a run, the
    findings go to its store (of membership inference an alarm without figures, or nothing) and to
    ``audit.json`` in its directory.

    Args:
        subject: a run, or a preset's name, of which nothing is stored.
        kind: ``all``, ``clipping``, ``sampling``, ``one-run``, ``one-shot``, ``noise`` or
            ``membership`` (of a run only).
        task: name of the one task that is audited; all by default.
        canaries: m, at least 20; fewer where a task's updates are too short for as many.
        rounds: audit another number of rounds.
        noise_multiplier: audit another noise: the same code where a leak can be shown.
        confidence: of the figures; alarms have their own, much larger.
        progress: is told what is measured, how much of it is done, and how much there is.

    Raises:
        WrongUse: there is nothing to audit, or an argument cannot be used.
        FedlensError: the run's directory or store cannot be used.
    """
    run = subject if isinstance(subject, Run) else None
    other = rounds is not None or noise_multiplier is not None
    if kind == "membership" and (run is None or other):
        raise WrongUse(
            "--kind membership needs a RUN_DIR: it attacks what a run released"
            if run is None
            else "--kind membership attacks what the run released: leave out other settings"
        )
    try:
        plan = AuditPlan(kind, canaries, confidence)
        if run is not None:
            _check_places(run)  # before minutes are spent on what cannot be kept
        config = run.config if run is not None else preset_config(str(subject))
        changes = {"rounds": rounds, "noise_multiplier": noise_multiplier}
        schedules = (
            [Schedule.of(config, task=task, **changes)]
            if task
            else Schedule.all_of(config, **changes)
        )
        samples = None
        if run is not None and plan.wants("membership") and not other:
            samples = _released(run, needed=kind == "membership")
        source = np.random.default_rng()
        found = run_audits(schedules, plan, source=source, samples=samples, observer=progress)
        findings = tuple(found)
    except NothingToAudit as error:
        raise WrongUse(str(error)) from error
    made = AuditReport(tuple(schedules), plan, findings)
    return made if run is None else _kept(run, made)


def _check_places(run: Run) -> None:
    from fedlens.store import open_store

    earlier_reports(run.directory)
    with open_store(run.store) as store:
        store.run(run.id)


def _released(run: Run, *, needed: bool) -> NDArray[np.uint8] | None:
    """All samples of releases; None before there are any, unless they are needed."""
    from fedlens.simulations.run_artifacts import stored_samples
    from fedlens.store import SampleFilter, open_store

    with open_store(run.store) as store:
        wanted = SampleFilter(run_id=run.id, purpose="curated")
        if not needed and not store.count_samples(wanted):
            return None
        return stored_samples(store, wanted)[0]


def _kept(run: Run, made: AuditReport) -> AuditReport:
    from fedlens.store import open_store

    with open_store(run.store) as store:
        store_findings(store, run.id, made.schedules, made.findings)
    kept = AuditReport(made.schedules, made.plan, made.findings, run.directory.path / "audit.json")
    write_report(run.directory, kept.content)
    return kept
