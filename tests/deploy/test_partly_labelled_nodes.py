"""Processes that talk by Flower, half of whose users have no labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedlens.server.round.releases import load_releases
from fedlens.store import SampleFilter, open_store
from harness.deployed_faults.federation import RECORDS, USERS, federation
from harness.deployed_faults.processes import SETTINGS, as_run, wait_for_end
from harness.faults.checks import problems_at_end

PARTLY: dict[str, object] = {
    **SETTINGS,
    "schedule": "critic annotator",
    "data.labels": "own-or-none",
    "data.records_per_user": RECORDS,
    "tasks.critic.rounds": 1,
    "tasks.annotator.kind": "annotator",
    "tasks.annotator.rounds": 1,
    "tasks.annotator.components": 4,
    "tasks.annotator.guided_steps": 0,
}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1500)
def test_a_run_over_flower_where_half_of_the_users_have_no_labels(tmp_path: Path) -> None:
    """Critics sum over all records, the annotator over labelled ones, and nothing says which."""
    config = tmp_path / "run.toml"
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in PARTLY.items()))
    with federation(tmp_path, labelled=USERS // 2) as made:
        status = wait_for_end(made.submit(config, "partly"))
        said = (made.root / "said.log").read_text(errors="replace")
        assert status == 0, said
        run = as_run(made, made.run_folder("partly"))
        assert problems_at_end(run) == []
        assert [one.classes for one in load_releases(run.run)] == [1, 2]
        with open_store(f"sqlite:///{run.run / 'store.db'}") as store:
            samples = list(store.samples(SampleFilter()))
    assert samples and {one.requested_class for one in samples} == {None}
