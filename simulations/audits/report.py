"""Where findings go: ``audit.json`` in the run's folder, for its operator alone, and the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedlens.accountant.audit.finding import Finding, false_alarm_bound
from fedlens.foundation.dates import today
from fedlens.foundation.files import write_durably
from fedlens.foundation.json_values import json_value
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.simulations.audits.audit import AuditPlan
from fedlens.simulations.audits.schedule import Schedule
from fedlens.store import AuditRecord, Store

FILE = "audit.json"
FIGURES = ("lower_bound", "estimate", "cap")
OF_EVENT = ("unit", "sampler", "sampling_rate", "noise_multiplier", "clipping_norm")


def report(
    schedules: Sequence[Schedule], plan: AuditPlan, findings: Sequence[Finding]
) -> dict[str, Any]:
    """Everything that was audited and found, as JSON values."""
    return {
        "at": today().isoformat(),
        "tasks": [_told(schedule) for schedule in schedules],
        "canaries": plan.canaries,
        "confidence": plan.confidence,
        "alarm": any(finding.verdict == "alarm" for finding in findings),
        "false_alarms": false_alarm_bound(len(schedules)),
        "findings": [finding.to_json() for finding in findings],
    }


def _told(schedule: Schedule) -> dict[str, Any]:
    event = {name: getattr(schedule.event, name) for name in OF_EVENT}
    return {"task": schedule.name, **event, "rounds": schedule.rounds}


def write_report(directory: RunDirectory, content: dict[str, Any]) -> Path:
    """Add a report to ``audit.json`` beside the ledger, which its owner alone can read.

    Raises:
        RunDirectoryError: what is in the file is not what this wrote.
    """
    path = directory.path / FILE
    everything = {"audits": [*earlier_reports(directory), content]}
    text = json.dumps(everything, indent=1, allow_nan=False) + "\n"
    write_durably(path, text.encode(), private=True)
    return path


def earlier_reports(directory: RunDirectory) -> list[Any]:
    """What `write_report` wrote before.

    Raises:
        RunDirectoryError: what is in the file is not that.
    """
    path = directory.path / FILE
    if not path.exists():
        return []
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["audits"])
    except (ValueError, KeyError, TypeError):
        raise RunDirectoryError(f"{path} is damaged: move it away, then audit again") from None


def store_findings(
    store: Store, run_id: str, schedules: Sequence[Schedule], findings: Sequence[Finding]
) -> None:
    """Put findings into the store; of membership inference, which looks at records, nothing."""
    for finding in findings:
        if finding.kind != "membership":
            store.record_audit(_record(run_id, schedules, finding))


def audited(schedules: Sequence[Schedule], finding: Finding) -> str:
    """What a finding is about, in words."""
    about = [schedule.in_words() for schedule in schedules if schedule.name == finding.task]
    return about[0] if about else "the run as a whole"


def _record(run_id: str, schedules: Sequence[Schedule], finding: Finding) -> AuditRecord:
    figures: dict[str, Any] = {name: json_value(getattr(finding, name)) for name in FIGURES}
    return AuditRecord(
        run_id=run_id,
        kind=finding.kind,
        claimed_epsilon=finding.claimed_epsilon,
        delta=finding.delta,
        verdict=finding.verdict,
        words=f"{finding.words} Audited: {audited(schedules, finding)}.",
        **figures,
    )
