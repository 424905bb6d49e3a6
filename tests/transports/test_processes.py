"""Nodes in several processes answer as in one, bit for bit; one that dies is missing."""

from __future__ import annotations

import os
import signal

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedlens.server.config.tree import Config
from fedlens.server.federation.exchange import exchange
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process, train_in_processes
from fedlens.simulations.transports.processes import several_processes

SMALL = {
    "data.users": 30,
    "data.nodes": 3,
    "data.samples_per_user": 4,
    "privacy.delta": 1e-3,
    "privacy.fixed_seed": 3,
    "tasks.critic.sampling_rate": 0.5,
    "tasks.critic.rounds": 2,
    "tasks.critic.generator_steps": 2,
    "generator.batch": 20,
    "generator.width": 8,
    "release.samples": 10,
    "release.strip": 1,
}


def counting() -> ClientApp:
    """Answers with its partition, its process and how often it was asked."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        asked = context.state.config_records.get("n", ConfigRecord({"asked": 0}))["asked"] + 1
        context.state["n"] = ConfigRecord({"asked": asked})
        if message.content["q"]["end"] == context.node_config["partition-id"]:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = {"partition": context.node_config["partition-id"], "asked": asked}
        return Message(
            RecordDict({"a": ConfigRecord({**answer, "process": os.getpid()})}), reply_to=message
        )

    return app


def ask(grid, end=-1):
    content = RecordDict({"q": ConfigRecord({"end": end})})
    nodes = dict.fromkeys(grid.get_node_ids(), content)
    replies = exchange(grid, nodes, message_type="train", group="1", deadline=30)
    return [reply["a"] for reply in replies.values()]


def test_nodes_share_processes_keep_their_state_and_one_process_that_dies_takes_its_own_along():
    with several_processes(counting, 3, {}, 2) as grid:
        for turn in (1, 2):
            answers = ask(grid)
            assert {a["partition"] for a in answers} == {0, 1, 2}
            assert {a["asked"] for a in answers} == {turn}
            assert len({a["process"] for a in answers} - {os.getpid()}) == 2
        assert {a["partition"] for a in ask(grid, end=1)} == {0, 2}
        assert {a["partition"] for a in ask(grid)} == {0, 2}
        workers = [worker.pid for worker in grid._workers]
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_several_processes_train_the_same_model_as_one(tmp_path):
    config = Config().updated(SMALL)
    digests = []
    for name, train in (("one", train_in_process), ("several", train_in_processes)):
        directory = RunDirectory.create(tmp_path / name, config)
        digests.append(train(config, directory, directory.default_store, None).model_sha256)
    assert digests[0] == digests[1]
