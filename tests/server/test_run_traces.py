"""What a run's traces say: its rounds and their parts, and no user, count or exception."""

from __future__ import annotations

import json

import pytest

from fedlens.foundation.traces import VARIABLE, traced, traces

pytestmark = pytest.mark.law("deployment: traces and metrics tell rounds only")

ALLOWED = {"fedlens.round", "fedlens.task", "fedlens.run"}


def test_a_run_traces_its_rounds_and_their_parts(small_config, run_small, tmp_path):
    path = tmp_path / "traces.jsonl"
    with traces({VARIABLE: str(path)}), traced("run", run="first"):
        run_small(small_config(tasks__critic__rounds=2))
    spans = [json.loads(line) for line in path.read_text().splitlines()]
    rounds = [s for s in spans if s["name"] == "round"]
    assert [s["attributes"]["fedlens.round"] for s in rounds] == [1, 2]
    for one in rounds:
        inside = {s["name"] for s in spans if s["parent_id"] == one["context"]["span_id"]}
        assert {"messages", "accounting", "noise", "generator", "store"} <= inside
    assert all(set(s["attributes"]) <= ALLOWED and not s["events"] for s in spans)
    assert {s["resource"]["attributes"]["service.name"] for s in spans} == {"fedlens"}
    assert len(spans) < 100
