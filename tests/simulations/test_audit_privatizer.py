"""Audits of a run that trains a filter first: of that part, and of what comes after it."""

from __future__ import annotations

import numpy as np
import pytest

from server.config.tree import Config
from simulations.audits.audit import Plan, run_audits
from simulations.audits.schedule import Schedule
from studies.benchmarks.audit_power import FAULTS

FILTERED = {
    "privatizer.method": "information",
    "tasks.privatizer.rounds": 2,
    "tasks.privatizer.noise_multiplier": 5.0,
    "tasks.critic.rounds": 2,
}


def verdicts(part: str, plan: Plan | None = None) -> dict[str, str]:
    schedule = Schedule.of(Config().updated(FILTERED), part=part)
    small = plan or Plan(canaries=200, dims=3000)
    found = run_audits(schedule, small, source=np.random.default_rng(7))
    return {finding.kind: finding.verdict for finding in found}


@pytest.mark.parametrize("part", ["privatizer", "critic"])
def test_each_part_is_audited_with_its_own_mechanism(part):
    assert "alarm" not in verdicts(part).values()
    with FAULTS["no noise"]():
        assert verdicts(part, Plan("noise"))["noise"] == "alarm"
