"""Kills of a deployment's processes and of the dashboard, in short: whole on demand.

``python -m harness.deployed_faults`` kills each process at every moment.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from fedlens.store import open_store
from harness.deployed_faults import dashboards
from harness.deployed_faults.dashboards import EDGES, dashboards_killed
from harness.deployed_faults.federation import federation
from harness.deployed_faults.processes import (
    FIX,
    MOMENTS,
    VICTIMS,
    ProcessFault,
    process_faults,
    processes_killed,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # what is forked must not have threads
    yield
    torch.set_num_threads(before)


@pytest.mark.thorough
def test_a_superlink_that_was_killed_costs_no_release_and_the_run_goes_on(tmp_path):
    with federation(tmp_path) as made:
        fault = ProcessFault("SuperLink with its gate", "round 1 whole")
        found = processes_killed(made, 1, iter([fault]))
        said = (made.root / "said.log").read_text()
    assert found.problems == [] and found.clean == found.faults == 1 and found.lost == 0
    (line,) = (one for one in said.splitlines() if one.startswith("fedlens:"))
    assert FIX.match(line) and "deploy status" in line and "goes on from its last whole" in line


def test_a_dashboard_that_dies_within_an_answer_leaves_it_whole_or_absent(tmp_path):
    found = dashboards_killed(3, lambda: (tmp_path, ""))
    assert found.problems == [] and found.clean == found.faults == 3


def test_an_answer_that_is_lost_or_changed_would_be_found(tmp_path, monkeypatch):
    """The checks, on a store where one acknowledged answer is not and another is not as sent."""
    folder = tmp_path
    dashboards_killed(0, lambda: (folder, ""))
    url = f"sqlite:///{folder / 'run' / 'store.db'}"
    with open_store(url) as store:
        (project,) = store.projects()
        desk = dashboards.Desk("", project.project_id)
        sent = [{"uuid": "never stored"}]
        assert list(dashboards._problems(store, url, desk, sent)) == []
        desk.acknowledged.add("never stored")
        (problem,) = dashboards._problems(store, url, desk, sent)
        assert "stored 0 times" in problem


def test_every_process_is_killed_at_every_moment_and_each_once_before_any_again():
    faults = list(process_faults())
    assert len(set(faults)) == len(faults) == len(VICTIMS) * len(MOMENTS)
    first = list(itertools.islice(faults, len(VICTIMS)))
    assert {fault.victim for fault in first} == set(VICTIMS)
    assert set(EDGES) > {"after the row", "before the commit"}
