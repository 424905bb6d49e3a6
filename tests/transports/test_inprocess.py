"""The Grid of our own delivers every message once, to its node, with state kept between rounds."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedlens.server.federation.exchange import exchange, wait_for_nodes
from fedlens.simulations.transports.inprocess import InProcessGrid


@pytest.fixture
def counting() -> ClientApp:
    """Answers with its partition and how often it was asked."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        asked = context.state.config_records.get("n", ConfigRecord({"asked": 0}))["asked"] + 1
        context.state["n"] = ConfigRecord({"asked": asked})
        if message.content["q"]["fail"] == context.node_config["partition-id"]:
            raise RuntimeError("a secret")
        answer = {"partition": context.node_config["partition-id"], "asked": asked}
        return Message(RecordDict({"a": ConfigRecord(answer)}), reply_to=message)

    return app


def ask(grid, fail=-1):
    content = RecordDict({"q": ConfigRecord({"fail": fail})})
    nodes = dict.fromkeys(grid.get_node_ids(), content)
    return exchange(grid, nodes, message_type="train", group="1", deadline=5)


def test_each_node_answers_for_itself_and_remembers(counting):
    grid = InProcessGrid(counting, 3, {})
    for turn in (1, 2):
        replies = ask(grid)
        assert {r["a"]["partition"] for r in replies.values()} == {0, 1, 2}
        assert {r["a"]["asked"] for r in replies.values()} == {turn}


@pytest.mark.law("4: a reply is a sum, a histogram and nothing else")
def test_a_node_that_raises_is_missing_and_its_text_is_nowhere(counting, caplog, capfd):
    grid = InProcessGrid(counting, 3, {})
    replies = ask(grid, fail=1)
    assert {r["a"]["partition"] for r in replies.values()} == {0, 2}
    assert "a secret" not in caplog.text + "".join(capfd.readouterr())


def test_a_node_that_never_answers_is_left_out_after_the_deadline(counting):
    class Silent(InProcessGrid):
        def pull_messages(self, message_ids):
            replies = super().pull_messages(message_ids)
            return [r for r in replies if r.content["a"]["partition"] != 2]

    replies = exchange(
        Silent(counting, 3, {}),
        dict.fromkeys([2, 3, 4], RecordDict({"q": ConfigRecord({"fail": -1})})),
        message_type="train",
        group="1",
        deadline=0.3,
    )
    assert {r["a"]["partition"] for r in replies.values()} == {0, 1}


def test_waiting_for_nodes_ends_at_the_deadline(counting):
    grid = InProcessGrid(counting, 2, {})
    assert len(wait_for_nodes(grid, 2, deadline=5)) == 2
    assert len(wait_for_nodes(grid, 3, deadline=0.3)) == 2


def test_the_pinned_flower_is_the_one_whose_internals_are_used():
    import flwr

    assert flwr.__version__ == "1.41.0"
