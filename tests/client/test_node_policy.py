"""A node's own floor: what is below it is refused, and not a word of why leaves the node."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

import pytest
import torch
from flwr.app import Message

from fedlens.client.app import build_client_app
from fedlens.client.messages import TRAIN, ReplyError, TrainReply
from fedlens.client.node.policy import NodePolicy, RequestRefused
from fedlens.client.users.protocol import NodeDataError
from fedlens.simulations.transports.inprocess import InProcessGrid

RECORD = {"unit": "record", "fixed_seed": 3}


def asked(users, request, **own: object):
    """The reply of a node with a configuration of its own."""
    grid = InProcessGrid(build_client_app(lambda context: users), 1, {}, own)
    (identity,) = grid.push_messages(
        [Message(request.to_record(), next(iter(grid.get_node_ids())), TRAIN)]
    )
    (reply,) = grid.pull_messages([identity])
    return TrainReply.from_record(reply.content)


@pytest.mark.parametrize(
    ("own", "changes"),
    [
        ({"least-noise-multiplier": 5.0}, {"noise_multiplier": 4.9}),
        ({"least-noise-multiplier": 5}, {"noise_multiplier": float("nan")}),
        ({"largest-sampling-rate": 0.1}, {"sampling_rate": 0.2}),
        ({"kinds": "annotator wgan"}, {}),
        ({"units": "record"}, {}),
        ({"units": "user"}, RECORD),
    ],
    ids=str,
)
@pytest.mark.law("1: a node refuses what is below its floor")
def test_a_request_below_the_floor_fails_without_a_word(users, make_request, caplog, own, changes):
    good = {"noise_multiplier": 6.0, "sampling_rate": 0.05}
    request = make_request(0, **good)
    mechanism = request.mechanism.model_copy(update=changes)
    request = replace(request, mechanism=mechanism)
    with caplog.at_level(logging.WARNING), pytest.raises(ReplyError, match="reported a failure"):
        asked(users, request, **own)
    assert next(iter(own)) in caplog.text  # the node's operator reads which
    assert asked(users, make_request(0, **good)).total.any()


@pytest.mark.law("1: a node refuses what is below its floor")
def test_a_server_that_states_a_small_rate_cannot_name_everybody(make_request):
    floor = NodePolicy.of({"largest-sampling-rate": 0.1})
    request = make_request(*range(1000), enrolled=1000, sampling_rate=0.05)
    with pytest.raises(RequestRefused, match="more users are named than largest-sampling-rate"):
        floor.accept(request)
    for drawn in (0, 100, 160):  # 160 of 1,000 at a rate of 0.1: once in 10^9 rounds
        assert len(floor.accept(replace(request, users=tuple(range(drawn)))).users) == drawn
    assert len(NodePolicy.of({}).accept(request).users) == 1000


def test_a_sum_that_is_longer_than_the_node_allows_is_not_sent(users, make_request, caplog):
    length = len(asked(users, make_request(0)).total)
    assert len(asked(users, make_request(0), **{"most-values": length}).total) == length
    with caplog.at_level(logging.WARNING), pytest.raises(ReplyError, match="reported a failure"):
        asked(users, make_request(0), **{"most-values": length - 1})
    assert f"most-values = {length - 1}" in caplog.text


def test_what_keeps_to_the_floor_is_answered_as_without_one(users, make_request):
    request = make_request(0, noise_multiplier=6.0, sampling_rate=0.05)
    floor = {
        "least-noise-multiplier": 6.0,
        "largest-sampling-rate": 0.05,
        "kinds": "frozen",
        "units": "user",
    }
    assert (asked(users, request, **floor).total == asked(users, request).total).all()


@pytest.mark.law("1: a node refuses what is below its floor")
def test_record_mode_without_noise_is_refused_unless_the_node_allows_it(
    users, make_request, monkeypatch
):
    silent = make_request(0, **RECORD, noise_multiplier=0.0)
    with pytest.raises(ReplyError):
        asked(users, silent)
    assert asked(users, silent, **{"allow-no-noise": True}).total.any()
    fixed = make_request(0, **RECORD)
    assert asked(users, fixed).total.any()
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(RequestRefused, match="allow-no-noise"):
        NodePolicy().accept(fixed)


@pytest.mark.law("1: a node refuses what is below its floor")
def test_rounds_are_counted_on_the_disk_before_a_reply_leaves(users, make_request, tmp_path):
    file = tmp_path / "rounds"
    own = {"most-rounds": 3, "rounds-file": str(file)}
    seen = []

    class Watched:
        def __getattr__(self, name):
            seen.append(file.read_text())
            return getattr(users, name)

        def __len__(self):
            return len(users)

    asked(Watched(), make_request(0), **own)
    assert set(seen) == {"1\n"}
    with pytest.raises(ReplyError):  # it fails, and is counted: what was computed may be known
        asked(users, failing(make_request), **own)
    assert file.read_text() == "2\n"
    asked(users, make_request(0), **own)
    for _ in range(2):
        with pytest.raises(ReplyError):
            asked(users, make_request(0), **own)
    assert file.read_text() == "3\n"


def failing(make_request):
    return replace(make_request(0), kind="magic")


def test_each_noised_step_of_record_mode_counts(users, make_request, tmp_path):
    policy = NodePolicy(most_rounds=5, rounds_file=str(tmp_path / "rounds"))
    request = make_request(0, kind="wgan", local_steps=2, **RECORD)
    for _ in range(2):
        policy.accept(request)
    with pytest.raises(RequestRefused, match="most-rounds"):
        policy.accept(request)


@pytest.mark.parametrize("steps", [0, -100])
@pytest.mark.parametrize("changes", [{}, {"kind": "wgan", **RECORD}], ids=["user", "record"])
def test_no_request_counts_for_nothing_or_takes_rounds_back(
    users, make_request, tmp_path, changes, steps
):
    file = tmp_path / "rounds"
    own = {"most-rounds": 3, "rounds-file": str(file)}
    request = make_request(0, **changes)
    assert asked(users, request, **own).total.any()
    counted = file.read_text()
    lying = replace(request, mechanism=request.mechanism.model_copy(update={"steps": steps}))
    with pytest.raises(ReplyError):
        asked(users, lying, **own)
    assert file.read_text() == counted


def test_a_round_of_users_counts_once_whatever_the_request_says(make_request, tmp_path):
    policy = NodePolicy(most_rounds=2, rounds_file=str(tmp_path / "rounds"))
    request = make_request(0)
    policy.accept(replace(request, mechanism=request.mechanism.model_copy(update={"steps": 9})))
    assert (tmp_path / "rounds").read_text() == "1\n"


def test_nodes_that_race_for_the_last_rounds_get_exactly_these(make_request, tmp_path):
    policy = NodePolicy(most_rounds=10, rounds_file=str(tmp_path / "rounds"))
    got = []

    def race():
        for _ in range(5):
            try:
                policy.accept(make_request(0))
                got.append(1)
            except RequestRefused:
                pass

    racers = [threading.Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(got) == 10


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5", "\xff"])
def test_a_damaged_count_refuses_rather_than_beginning_anew(make_request, tmp_path, text):
    file = tmp_path / "rounds"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(NodeDataError, match="holds no count"):
        NodePolicy(most_rounds=10, rounds_file=str(file)).accept(make_request(0))


@pytest.mark.parametrize(
    "own",
    [
        {"least-noise-multiplier": "5"},
        {"most-rounds": 2.5},
        {"most-rounds": 3},
        {"most-rounds": 3, "rounds-file": "relative"},
        {"units": "household"},
        {"allow-no-noise": 1},
    ],
    ids=str,
)
def test_a_configuration_that_cannot_be_meant_answers_nothing(users, make_request, own):
    with pytest.raises(NodeDataError, match=next(iter(own))):
        NodePolicy.of(own)
    with pytest.raises(ReplyError):
        asked(users, make_request(0), **own)


def test_a_node_with_data_of_its_own_trusts_a_server_with_no_more_than_it_is_told(make_request):
    own = {"data": "/somewhere/users.npz"}
    record = make_request(0, noise_multiplier=1e-6)
    record = replace(record, mechanism=record.mechanism.model_copy(update={"unit": "record"}))
    with pytest.raises(RequestRefused, match="units"):
        NodePolicy.of(own).accept(record)
    with pytest.raises(NodeDataError, match="least-noise-multiplier"):
        NodePolicy.of({**own, "units": "record"})
    silo = NodePolicy.of({**own, "units": "record", "least-noise-multiplier": 0.8})
    with pytest.raises(RequestRefused, match="least-noise-multiplier"):
        silo.accept(record)
    with pytest.raises(RequestRefused, match="units"):  # no user's sum without noise either
        silo.accept(make_request(0))


def test_a_node_can_take_fewer_records_of_a_user_and_no_more(make_request):
    request = make_request(0, records_per_user=10)
    assert NodePolicy(records_per_user=4).accept(request).records_per_user == 4
    assert NodePolicy(records_per_user=40).accept(request).records_per_user == 10
    open_request = make_request(0, records_per_user=0)
    assert NodePolicy(records_per_user=40).accept(open_request).records_per_user == 40
    assert NodePolicy().accept(open_request).records_per_user == 32


@pytest.mark.parametrize("drawn", [(0, 1, 2), ()])
@pytest.mark.law("6: replies can wait for a fixed time")
def test_a_reply_waits_for_the_nodes_fixed_time(users, make_request, drawn):
    started = time.monotonic()
    asked(users, make_request(*drawn), **{"reply-after": 1.0})
    assert time.monotonic() - started >= 1
    with pytest.raises(ReplyError):
        asked(users, failing(make_request), **{"reply-after": 1.0})
    assert time.monotonic() - started >= 2


def test_a_request_is_computed_on_as_many_cores_as_the_operator_says(users, make_request):
    seen = []

    class Watching:
        def __len__(self):
            return len(users)

        def __getattr__(self, name):
            seen.append(torch.get_num_threads())
            return getattr(users, name)

    for given, wanted in (({}, 1), ({"threads": 2}, 2)):
        seen.clear()
        asked(Watching(), make_request(0), **given)
        assert set(seen) == {wanted}
    torch.set_num_threads(1)
    with pytest.raises(NodeDataError, match="threads=0"):
        NodePolicy.of({"threads": 0})
