"""Messages of a deployment that come twice, again or late over Flower's real transport, in short.

Whole, with a second run and every kind of exchange:
``python -m harness.deployed_faults.messages``.
"""

from __future__ import annotations

import json

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedlens.client.messages import TRAIN
from fedlens.client.secure_messages import SHARES
from harness.deployed_faults.hostile_grid import Sent
from harness.deployed_faults.messages import Exchanged, hostile_federation, judge
from harness.deployed_faults.messages import messages_played_again as played


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.law("2: noise never repeats")
def test_a_deployed_node_gives_a_round_of_records_one_answer_however_often_it_is_asked(tmp_path):
    """The one kind whose second answer, with fresh noise, would be a release that no ledger has."""
    with hostile_federation(tmp_path, "records") as made:
        found = played(made, "records", runs=1)
    assert found.problems == []
    sent, again, answered, failed = found.kinds[TRAIN]
    assert sent == 4 and answered == 0 and failed == again >= 4


def test_a_second_answer_would_be_found():
    """The check, on answers that no node gives."""

    def message(kind):
        content = RecordDict({"config": ConfigRecord({"round": 1})})
        return Sent.of(Message(content, 7, kind, group_id="1"))

    share = message(SHARES)
    found, once = Exchanged(), {"digest": share.digest, "done": True, "told": ""}
    judge(found, [share], [once, {**once, "done": False}])
    assert found.problems == [] and found.kinds == {SHARES: [1, 1, 0, 1]}
    judge(found, [share], [json.loads(json.dumps(once))] * 2)
    assert found.problems == [f"{SHARES} of group '1' was answered 2 times"]
