"""Kinds of task of other packages: found by their entry points, configured and run like ours."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from run_tasks import RECORD

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population
from fedlens.accountant.ledger.terms import PopulationTerms, population_folder
from fedlens.foundation import registry
from fedlens.server.config.reference import tables
from fedlens.server.config.tasks import TASK_KINDS
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.round.step import NoUsableReply

ON_SERVERS = EntryPoint("echo", "outside_task:ECHO", "fedlens.tasks")
ON_NODES = EntryPoint("echo", "fedlens.client.tasks.frozen:FrozenLocalTask", "fedlens.client_tasks")


def test_a_run_carries_out_a_task_of_another_package(installed, small_config, run_small, tmp_path):
    ours = run_small(small_config(tasks__critic__kind="frozen"), "ours")
    installed(ON_SERVERS, ON_NODES)
    theirs = run_small(small_config(tasks__critic__kind="echo"), "theirs")
    assert theirs.model_sha256 == ours.model_sha256
    entries = Ledger.verify(tmp_path / "theirs" / "ledger.jsonl")
    assert {entry.event.released.partition(" (")[0] for entry in entries} == {"echo critic update"}
    assert '[tasks.NAME] kind = "echo"' in [table.title for table in tables()]


MASKED = {
    "data__nodes": 5,
    "aggregation__secure": True,
    "aggregation__noise": "distributed",
    "aggregation__tolerated_dropouts": 1,
    "aggregation__colluding": 1,
}


@pytest.mark.parametrize(
    "changes",
    [{}, {key.replace(".", "__"): value for key, value in RECORD.items()}, MASKED],
    ids=["user", "record", "masked"],
)
def test_a_task_is_booked_for_its_own_purpose_in_the_run_and_in_its_population(
    installed, small_config, run_small, tmp_path, monkeypatch, changes
):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    installed(ON_SERVERS, ON_NODES)
    config = small_config(
        tasks__critic__kind="echo", privacy__population="clinic", privacy__fixed_seed=-1, **changes
    )
    unit, delta = config.privacy.unit, config.privacy.delta
    folder = population_folder("clinic")
    Population.create(folder, PopulationTerms("clinic", unit, delta, epsilon_budget=1e3))
    run_small(config)
    for path in (tmp_path / "run" / "ledger.jsonl", folder / "ledger.jsonl"):
        assert [entry.purpose for entry in Ledger.verify(path)] == ["echo round"] * 3


def test_a_node_without_the_package_fails_and_the_round_is_charged(
    installed, small_config, run_small, tmp_path
):
    installed(ON_SERVERS)
    with pytest.raises(NoUsableReply):
        run_small(small_config(tasks__critic__kind="echo"))
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 1


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ((), "no kind of task 'echo': choose one of frozen, focused, wgan, annotator, privatizer"),
        ((EntryPoint("echo", "nowhere:X", "fedlens.tasks"),), "nowhere:X.* cannot be loaded"),
        ((ON_SERVERS, ON_SERVERS), "'echo' exists more than once"),
    ],
)
def test_a_kind_that_is_not_there_broken_or_taken_is_refused(installed, points, said):
    installed(*points)
    with pytest.raises(registry.FedlensError, match=said):
        Config().updated({"tasks.critic.kind": "echo"})
    if not points:
        with pytest.raises(ConfigError):
            Config().updated({"tasks.critic.kind": "echo"})


def test_a_package_cannot_take_the_name_of_one_of_ours(installed, monkeypatch):
    installed(EntryPoint("wgan", "outside_task:ECHO", "fedlens.tasks"))
    monkeypatch.setattr(TASK_KINDS, "_loaded", {})
    with pytest.raises(registry.PluginError, match="'wgan' exists more than once: uninstall"):
        Config().updated({"tasks.critic.kind": "wgan"})
