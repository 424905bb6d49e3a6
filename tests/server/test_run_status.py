"""A run says how it goes in its log and its folder, and nothing of users in either."""

from __future__ import annotations

import json
import logging
import re
import stat

import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from fedlens.client.messages import failure
from fedlens.server.federation.enrolment import EnrolmentError
from fedlens.simulations.federation.apps import client_app


def said_by(tmp_path):
    return json.loads((tmp_path / "run" / "status.json").read_text())


def test_each_round_is_said_with_both_epsilons_and_the_nodes(
    run_small, small_config, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "fedlens.server")
    outcome = run_small(small_config(tasks__critic__noise_multiplier=2.0))
    said = said_by(tmp_path)
    assert (said["status"], said["round"], said["rounds"]) == ("finished", 3, 3)
    assert said["dp_epsilon"] == outcome.spending.dp_epsilon
    assert said["bdp_epsilon"] == pytest.approx(outcome.spending.bdp_sound)
    assert (said["nodes_asked"], said["nodes_answered"], said["refused"]) == (2, 2, {})
    lines = [r.getMessage() for r in caplog.records if r.name == "fedlens.server.round.status"]
    assert sum(line.startswith("round ") for line in lines) == 3
    assert all("DP ε" in line and "Bayesian DP ε" in line for line in lines[1:4])
    assert str(tmp_path / "run") in lines[0] and "finished" in lines[-1]
    assert stat.S_IMODE((tmp_path / "run" / "status.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_the_engine_of_several_local_steps_is_recorded(run_small, small_config, tmp_path):
    critic = {"kind": "wgan", "local_steps": 2, "rounds": 1, "engine": "columns"}
    settings = {f"tasks__critic__{name}": value for name, value in critic.items()}
    run_small(small_config(tasks__critic__precision="bfloat16", **settings))
    assert said_by(tmp_path)["computed_by"] == {
        "critic": "columns, bfloat16",
        "generator": "float32, 1 thread",
    }


def test_a_node_that_fails_is_missing_in_what_is_said(run_small, small_config, tmp_path, caplog):
    caplog.set_level(logging.INFO, "fedlens.server")
    app = ClientApp()

    @app.query("describe")
    def describe(message, context):
        return client_app(message, context)

    @app.train()
    def train(message, context):
        if context.node_config["partition-id"] == 0:
            return Message(failure(), reply_to=message)
        return client_app(message, context)

    run_small(small_config(), app=app)
    said = said_by(tmp_path)
    assert (said["nodes_asked"], said["nodes_answered"], said["nodes_missing"]) == (2, 1, 1)
    assert "1 of 2 nodes answered, 1 missing" in caplog.text


def test_a_run_that_no_node_answers_says_so_by_the_app(small_config, tmp_path, monkeypatch):
    from types import SimpleNamespace

    from fedlens.server.app import main
    from fedlens.simulations.transports.inprocess import InProcessGrid

    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path))
    app = ClientApp()

    @app.query("describe")
    def describe(message, context):
        return Message(RecordDict(), reply_to=message)

    config = small_config(rounds__deadline=1.0)
    context = SimpleNamespace(run_config={**config.flat(), "run.name": "mine"}, run_id=7)
    with pytest.raises(EnrolmentError):
        main(InProcessGrid(app, 2, config.flat()), context)
    said = json.loads((tmp_path / "runs" / "mine" / "status.json").read_text())
    assert said["status"] == "failed" and "node" in said["reason"]
    log = tmp_path / "runs" / "mine" / "run.log"
    first, *_, last = log.read_text().splitlines()
    assert "Flower's run 7 carries out mine" in first
    assert f"the run is failed: {said['reason']}" in last
    assert re.match(r"\d{4}-\d\d-\d\d (INFO|WARNING|ERROR) fedlens", last)  # a day and no time
    status = log.stat()
    assert status.st_mtime % 86_400 == 0 and stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", ""])
def test_a_runs_name_cannot_leave_the_folder_of_runs(name, tmp_path, monkeypatch):
    from fedlens.server.app import _fresh_path
    from fedlens.server.config.tree import ConfigError

    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path))
    if name:
        with pytest.raises(ConfigError, match=r"run\.name"):
            _fresh_path(255, name)
    else:
        assert _fresh_path(255, name) == tmp_path / "runs" / "ff"
