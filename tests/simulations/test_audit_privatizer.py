"""Audits of a run that trains a filter first: of that task, and of what comes after it."""

from __future__ import annotations

import numpy as np
import pytest

from server.config.tree import Config
from simulations.audits.audit import AuditPlan, run_audits
from simulations.audits.schedule import Schedule
from studies.benchmarks.audit_power import FAULTS

FILTERED = {
    "schedule": "privatizer critic",
    "privatizer.kind": "federated",
    "tasks.privatizer.kind": "privatizer",
    "tasks.privatizer.rounds": 2,
    "tasks.privatizer.noise_multiplier": 5.0,
    "tasks.critic.rounds": 2,
}


def verdicts(task: str, plan: AuditPlan | None = None) -> dict[str, str]:
    schedule = Schedule.of(Config().updated(FILTERED), task=task)
    small = plan or AuditPlan(canaries=200, dims=3000)
    found = run_audits(schedule, small, source=np.random.default_rng(7))
    return {finding.kind: finding.verdict for finding in found}


@pytest.mark.parametrize("task", ["privatizer", "critic"])
def test_each_task_is_audited_with_its_own_mechanism(task):
    assert "alarm" not in verdicts(task).values()
    with FAULTS["no noise"]():
        assert verdicts(task, AuditPlan("noise"))["noise"] == "alarm"
