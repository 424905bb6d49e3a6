"""Messages of a deployment that come twice, again or late over Flower's real transport, in short.

Whole, with more rounds, a second run and every kind of exchange:
``python -m harness.deployed_faults.messages``.
"""

from __future__ import annotations

import pytest

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
        found = played(made, "records", runs=1, rounds=1)
    assert found.problems == []
    assert found.kinds[TRAIN] == [2, 2, 0, 2]  # sent, came again, answered again, failed


def test_a_second_answer_would_be_found():
    """The check, on answers that no node gives."""
    share, found = Sent(SHARES, 7, "1", ""), Exchanged()
    answered = {"digest": share.digest, "done": True, "told": ""}
    judge(found, [share], [answered, {**answered, "done": False}])
    assert found.problems == [] and found.kinds == {SHARES: [1, 1, 0, 1]}
    judge(found, [share], [answered, answered])
    assert found.problems == [f"{SHARES} of group '1' was answered 2 times"]
