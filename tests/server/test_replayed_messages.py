"""Every message of a run, played again, twice or in another order: no second answer, nothing twice.

The run is a real one of each kind of exchange; who plays its messages again is a server, or whoever
stands in for one, and has all that was ever sent.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client import secure_messages as wire
from fedlens.client.messages import DESCRIBE, DONE, TRAIN, TrainReply, TrainRequest
from fedlens.client.node.replay_guard import TakenBefore, take_round
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.federation.apps import client_app
from fedlens.simulations.transports.inprocess import InProcessGrid

SECURE = (wire.KEYS, wire.SHARES, wire.MASKED, wire.AGREE, wire.REVEAL)
MASKED = {"data__nodes": 3, "aggregation__secure": True, "aggregation__tolerated_dropouts": 1}
WAYS = {
    "sums of users": ({}, {DESCRIBE, TRAIN}),
    "records": (
        {"privacy__unit": "record", "privacy__delta": 1e-5, "data__records_per_node": 100},
        {DESCRIBE, TRAIN},
    ),
    "masked sums": (MASKED, {DESCRIBE, *SECURE}),
    "masked sums, noise of nodes": (
        {**MASKED, "aggregation__noise": "distributed"},
        {DESCRIBE, *SECURE},
    ),
}


class Recorded(InProcessGrid):
    """Keeps every message with its reply, and may play them again before a pull is answered."""

    def __init__(self, config, *, spoiled: bool = False) -> None:
        super().__init__(client_app, config.data.nodes, config.flat())
        self.sent: list[tuple[Message, Message]] = []
        self._spoiled, self._source = spoiled, random.Random(5)

    def answer(self, message):
        reply = super().answer(message)
        self.sent.append((message, reply))
        return reply

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))
        if not self._spoiled:
            return replies
        earlier = [reply for _, reply in self.sent]
        mixed = replies + replies + earlier  # each twice, and all that ever came
        self._source.shuffle(mixed)
        return mixed

    def play(self, message):
        """Have the message's node answer it once more."""
        again = Message(
            message.content, message.metadata.dst_node_id, message.metadata.message_type
        )
        return InProcessGrid.answer(self, again)


@pytest.fixture
def recorded(small_config, tmp_path):
    """Train a run in one of the ways, and keep what was sent."""

    def run(way, name="run", *, spoiled=False, seed=3):
        changes = {**WAYS[way][0], "privacy__fixed_seed": seed}
        config = small_config(tasks__critic__rounds=2, **changes)
        grid = Recorded(config, spoiled=spoiled)
        outcome = train(config, RunDirectory.create(tmp_path / name, config), grid)
        return outcome, grid

    return run


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.law("1: the server checks every reply")
def test_replies_that_come_twice_late_and_in_disorder_count_once(recorded, tmp_path, way):
    whole, _ = recorded(way)
    mixed, _ = recorded(way, "mixed", spoiled=True)
    assert mixed.model_sha256 == whole.model_sha256
    assert mixed.spending.dp_epsilon == whole.spending.dp_epsilon
    assert [e.round for e in Ledger.verify(tmp_path / "mixed" / "ledger.jsonl")] == [1, 2]


def told(reply):
    """What a reply says of users, as far as it says anything."""
    if reply.content.config_records["config"]["status"] != DONE:
        return None
    answer = TrainReply.from_record(reply.content)
    return answer.total, answer.norms


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.law("2: noise never repeats")
def test_no_message_gets_a_second_answer_from_data(recorded, way):
    """In any order, all of them, twice: a failure, or the very bytes that were sent before.

    Keys of a sum hold no data, and what a node says of its list is the same each time.
    """
    _, grid = recorded(way, seed=-1)
    sent = list(grid.sent)
    assert {message.metadata.message_type for message, _ in sent} == WAYS[way][1]
    random.Random(3).shuffle(sent)
    for message, first in sent + sent:
        kind, again = message.metadata.message_type, grid.play(message)
        if kind in (wire.SHARES, wire.MASKED, wire.AGREE, wire.REVEAL):
            assert again.content.config_records["config"]["status"] != DONE, kind
        if kind == TRAIN and told(again) is not None:
            for once, twice in zip(told(first), told(again), strict=True):
                np.testing.assert_array_equal(once, twice)


def test_a_round_that_a_nodes_floor_refused_is_answered_once_its_owner_allows_it(recorded):
    _, grid = recorded("records", seed=-1)
    message = next(m for m, _ in grid.sent if m.metadata.message_type == TRAIN)
    context = grid._contexts[message.metadata.dst_node_id]
    context.state = RecordDict()  # that of a node that was asked for no round yet
    answered = []
    for floor in (99.0, 0.5, 0.5):
        context.node_config["least-noise-multiplier"] = floor
        answered.append(told(grid.play(message)) is not None)
    assert answered == [False, True, False]


def test_a_deployed_node_takes_a_round_of_records_once_whichever_process_is_asked(
    recorded, tmp_path, monkeypatch
):
    """Messages at the same time are answered from one kept state; nodes share a machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _, grid = recorded("records", seed=-1)
    request = next(
        TrainRequest.from_record(message.content)
        for message, _ in grid.sent
        if message.metadata.message_type == TRAIN
    )

    def at(node, state):
        return Context(1, node, {"data": "/own"}, state, {})

    take_round(request, at(1, RecordDict()))
    take_round(request, at(2, RecordDict()))
    with pytest.raises(TakenBefore):
        take_round(request, at(1, RecordDict()))
