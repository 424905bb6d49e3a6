"""Small tasks of every kind, and audits of them."""

from __future__ import annotations

import numpy as np
import pytest

from fedlens.simulations.audits import audit
from fedlens.simulations.audits.audit import run_audits
from fedlens.simulations.audits.schedule import Schedule
from harness.audit_power import PLAN
from harness.audit_subjects import subjects, two_tasks


@pytest.fixture(scope="session")
def known() -> dict[str, list[Schedule]]:
    return {**subjects(), **two_tasks()}


@pytest.fixture
def source() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.fixture(autouse=True)
def processes_that_differ(monkeypatch):
    """Fresh processes are started in the tests that are about them."""
    monkeypatch.setattr(audit, "restarts_repeat", lambda: False)


@pytest.fixture
def verdicts():
    def found(schedules: list[Schedule], plan: object = PLAN) -> dict[str, str]:
        source = np.random.default_rng()
        return {f.kind: f.verdict for f in run_audits(schedules, plan, source=source)}

    return found
