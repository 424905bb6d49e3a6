"""A node in a secure sum, through its ClientApp: what it refuses, message by message."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from flwr.app import ConfigRecord, Message, RecordDict

from fedlens.client import secure_messages as wire
from fedlens.client.app import build_client_app
from fedlens.client.messages import TRAIN, ReplyError, TrainReply
from fedlens.client.node import replay_guard
from fedlens.client.node.policy import NodePolicy
from fedlens.client.train import train
from fedlens.client.users.protocol import NodeDataError
from fedlens.foundation.secure_sum import (
    Advert,
    Identity,
    SecureSumError,
    SumCollector,
    SumParty,
    SumTerms,
    bits_for,
    decoded,
)
from fedlens.server.federation.enrolment import describe

NODES = 3


class Federation:
    """Three nodes, asked one message at a time."""

    def __init__(self, users, own=None, **terms) -> None:
        from fedlens.simulations.transports.inprocess import InProcessGrid

        self.users = users
        self.grid = InProcessGrid(build_client_app(lambda context: users), NODES, {})
        self.nodes = dict(enumerate(self.grid.get_node_ids(), start=1))
        for index, node in self.nodes.items():
            self.grid._contexts[node].node_config.update((own or {}).get(index, {}))

    def ask(self, index: int, kind: str, content: RecordDict) -> RecordDict:
        (identity,) = self.grid.push_messages([Message(content, self.nodes[index], kind)])
        (reply,) = self.grid.pull_messages([identity])
        return reply.content

    def state(self, index: int):
        return self.grid._contexts[self.nodes[index]].state.config_records


class Round(Federation):
    """A whole round over them, whose steps tests disturb."""

    def __init__(self, users, request, noise="server", own=None, colluding=0) -> None:
        super().__init__(users, own)
        self.request = request
        self.settings = wire.SumSettings(noise=noise, norms_share=0.02, users=21, kind=request.kind)
        size = len(train(users, request).total)
        layout = wire.layout_of(
            request.mechanism, self.settings, size, parties=NODES, honest=2 - colluding
        )
        self.layout = layout
        self.terms = SumTerms(
            session=b"0123456789abcdef", round=request.round, parties=NODES, threshold=2,
            least=2, colluding=colluding, size=layout.size, bits=bits_for(layout.largest),
            summed=self.settings.summed(request.mechanism),
        )  # fmt: skip
        self.collector = SumCollector(self.terms, request.digest())

    def keys(self) -> Round:
        for index in self.nodes:
            reply = self.ask(index, wire.KEYS, wire.keys_request(self.terms, index))
            assert not self.collector.take_advert(index, wire.read_advert(reply))
        return self

    def shares(self) -> Round:
        for index in self.nodes:
            request = wire.shares_request(self.terms.session, list(self.collector.adverts.values()))
            sealed = wire.read_sealed(self.ask(index, wire.SHARES, request), replied=True)
            assert not self.collector.take_shares(index, sealed)
        return self

    def masked(self, index: int, request=None, settings=None, session=None) -> bytes:
        record = (request or self.request).to_record()
        sealed = self.collector.shares_for(index)
        record = wire.add_sealed(record, session or self.terms.session, sealed)
        record = wire.add_settings(record, settings or self.settings)
        return wire.read_masked(self.ask(index, wire.MASKED, record))

    def mask(self) -> Round:
        for index in self.nodes:
            assert not self.collector.take_masked(index, self.masked(index))
        return self

    def agree(self) -> Round:
        survivors = self.collector.survivors
        for index in survivors:
            reply = self.ask(index, wire.AGREE, wire.agree_request(self.terms.session, survivors))
            assert not self.collector.take_signature(index, wire.read_signature(reply))
        return self

    def reveal(self) -> Round:
        for index in self.collector.survivors:
            request = wire.reveal_request(self.terms.session, self.collector.signatures)
            reply = self.ask(index, wire.REVEAL, request)
            assert not self.collector.take_reveal(index, wire.read_reveal(reply))
        return self

    def opened(self) -> tuple[np.ndarray, np.ndarray]:
        return self.layout.decoded(decoded(self.collector.opened(), self.terms.bits))


def failed(federation: Federation, index: int, kind: str, content: RecordDict) -> bool:
    return federation.ask(index, kind, content).config_records["config"]["status"] == "failed"


def test_a_round_sums_what_plain_replies_add_up_to(users, make_request):
    request = make_request(0, 2, 5)
    run = Round(users, request).keys().shares().mask().agree().reveal()
    total, norms = run.opened()
    plain = train(users, request)
    np.testing.assert_array_equal(total, NODES * plain.total)
    np.testing.assert_array_equal(norms, NODES * plain.norms)


def test_nothing_of_a_sum_stays_on_a_node(users, make_request):
    run = Round(users, make_request(0)).keys().shares().mask().agree()
    assert all(run.state(index) for index in run.nodes)
    run.reveal()
    assert not any(run.state(index) for index in run.nodes)
    request = wire.reveal_request(run.terms.session, run.collector.signatures)
    assert failed(run, 1, wire.REVEAL, request)  # asked again


def test_a_masked_sum_is_given_once_and_never_for_another_request(users, make_request):
    request = make_request(0, 2)
    run = Round(users, request).keys().shares()
    softer = request.mechanism.model_copy(update={"noise_multiplier": 1e-6})
    for changed in (
        {"request": replace(request, mechanism=softer)},
        {"request": replace(request, round=2)},
        {"settings": run.settings.model_copy(update={"users": 20})},
        {"settings": run.settings.model_copy(update={"noise": "distributed"})},
        {"session": b"f" * 16},
    ):
        with pytest.raises(ReplyError, match="failure"):
            run.masked(1, **changed)
    assert run.masked(1)
    with pytest.raises(ReplyError, match="failure"):
        run.masked(1)


@pytest.mark.law("secure sums: a dishonest server opens nothing")
def test_a_server_that_sends_one_node_another_model_opens_nothing(users, make_request):
    """It would see that node's sum, were the others' models such that they have nothing to add."""
    request = make_request(0, 2)
    run = Round(users, request).keys().shares()
    other = {name: np.zeros_like(values) for name, values in request.weights.items()}
    for index in run.nodes:
        weights = request.weights if index == 1 else other
        content = run.masked(index, request=replace(request, weights=weights))
        assert not run.collector.take_masked(index, content)
    survivors, signatures = run.collector.survivors, {}
    for index in survivors:
        reply = run.ask(index, wire.AGREE, wire.agree_request(run.terms.session, survivors))
        signatures[index] = wire.read_signature(reply)
    for index in survivors:
        valid = {index: signatures[index]} if index == 1 else {2: signatures[2]}
        assert failed(run, index, wire.REVEAL, wire.reveal_request(run.terms.session, valid))


def test_a_digest_of_a_request_is_of_all_but_who_was_drawn(make_request):
    request = make_request(0, 2)
    assert request.digest() == make_request(1, enrolled=9).digest()
    again = type(request).from_record(request.to_record())
    assert again.digest() == request.digest()
    for change in (
        {"seed": 6}, {"round": 2}, {"kind": "wgan"}, {"key": b"k"}, {"records_per_user": 3},
        {"weights": {**request.weights, "critic": request.weights["critic"] + 1}},
        {"settings": {**request.settings, "feature_seed": 7}},
    ):  # fmt: skip
        assert replace(request, **change).digest() != request.digest()


def test_an_exact_sum_of_one_honest_node_is_not_given(users, make_request):
    run = Round(users, make_request(0))
    run.terms = replace(run.terms, threshold=3, least=3, colluding=2)
    run.collector = SumCollector(run.terms, run.request.digest())
    run.keys().shares()
    with pytest.raises(ReplyError, match="failure"):
        run.masked(1)


def test_messages_out_of_their_order_are_refused(users, make_request):
    run = Round(users, make_request(0)).keys()
    with pytest.raises(ReplyError, match="failure"):
        run.masked(1)
    assert failed(run, 1, wire.AGREE, wire.agree_request(run.terms.session, [1, 2]))
    adverts = list(run.collector.adverts.values())
    assert failed(run, 1, wire.SHARES, wire.shares_request(b"f" * 16, adverts))
    run.shares()  # none of it disturbed the sum
    assert failed(run, 1, wire.REVEAL, wire.reveal_request(run.terms.session, {}))
    assert not run.state(1)  # a reveal that comes too early ends it for this node


def test_new_keys_end_the_sum_before(users, make_request):
    """A server that begins anew gets fresh secrets, and nothing more of the old sum."""
    run = Round(users, make_request(0)).keys().shares().mask().agree()
    again = replace(run.terms, session=b"f" * 16)
    run.ask(1, wire.KEYS, wire.keys_request(again, 1))
    request = wire.reveal_request(run.terms.session, run.collector.signatures)
    assert failed(run, 1, wire.REVEAL, request)


def test_no_reply_says_anything_of_why_it_failed(users, make_request):
    run = Round(users, make_request(0)).keys()
    reply = run.ask(1, wire.AGREE, wire.agree_request(run.terms.session, [1, 2]))
    assert {name: dict(r) for name, r in reply.config_records.items()} == {
        "config": {"status": "failed"}
    }
    assert not reply.array_records


# Long-term keys


def key_files(tmp_path, *, without: int = 0) -> dict[int, dict[str, str]]:
    """Each node's own configuration: its key and everyone's public keys."""
    identities = {index: Identity.new() for index in range(1, NODES + 1)}
    form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    roster = [i.public for index, i in identities.items() if index != without]
    (tmp_path / "roster").write_text("\n".join(roster))
    for index, identity in identities.items():
        content = identity.private.private_bytes(*form, serialization.NoEncryption())
        (tmp_path / f"key{index}").write_bytes(content)
    return {
        index: {"identity": str(tmp_path / f"key{index}"), "roster": str(tmp_path / "roster")}
        for index in identities
    }


def test_nodes_that_know_each_other_sum(users, make_request, tmp_path):
    run = Round(users, make_request(0), own=key_files(tmp_path))
    run.keys().shares().mask().agree().reveal()
    assert run.opened()[0].any()


def test_a_long_term_key_is_kept_in_its_file_alone(users, make_request, tmp_path):
    run = Round(users, make_request(0), own=key_files(tmp_path)).keys()
    identity = Identity.load(tmp_path / "key1")
    whole = repr({name: dict(record) for name, record in run.state(1).items()})
    seed = identity.private.private_bytes_raw()
    assert repr(seed)[2:-1] not in whole and "PRIVATE" not in whole


def test_a_node_that_is_on_no_roster_is_in_no_sum(users, make_request, tmp_path, caplog):
    run = Round(users, make_request(0), own=key_files(tmp_path, without=3)).keys()
    request = wire.shares_request(run.terms.session, list(run.collector.adverts.values()))
    with caplog.at_level(logging.WARNING):
        assert failed(run, 1, wire.SHARES, request)
    assert "not on this node's roster" in caplog.text


def test_a_server_in_the_middle_gets_no_shares(users, make_request, tmp_path):
    """It answers node 1 with keys of its own for both others, signed by keys of its own."""
    run = Round(users, make_request(0), own=key_files(tmp_path)).keys()
    own = run.collector.adverts[1]
    made_up = [SumParty.new(run.terms, i, Identity.new()).advertise() for i in (2, 3)]
    request = wire.shares_request(run.terms.session, [own, *made_up])
    assert failed(run, 1, wire.SHARES, request)
    relabelled = [replace(made_up[0], identity=run.collector.adverts[2].identity)]
    request = wire.shares_request(run.terms.session, [own, *relabelled])
    assert failed(run, 1, wire.SHARES, request)


def two_seats(run: Round, other: Round, lent: Identity | None) -> RecordDict:
    """Node 1 has seats 1 and 2, each in a context of its own; node 2 lends its long-term key.

    Returns:
        The request for shares that the second seat gets, over keys which all who see them accept.
    """
    first, third = (
        wire.read_advert(run.ask(index, wire.KEYS, wire.keys_request(run.terms, index)))
        for index in (1, 3)
    )
    second = wire.read_advert(other.ask(1, wire.KEYS, wire.keys_request(run.terms, 2)))
    if lent is not None:
        second = Advert.signed(run.terms, lent, replace(second, identity=lent.public))
    return wire.shares_request(run.terms.session, [first, second, third])


@pytest.mark.parametrize("lends", [True, False], ids=["a colluding node lends its key", "alone"])
@pytest.mark.law("secure sums: a node is in a sum once")
def test_a_server_and_a_colluding_node_give_no_node_two_seats(users, make_request, tmp_path, lends):
    """Its users would count twice under one sum's noise. Flower keeps a state for each run."""
    own = key_files(tmp_path)
    run, other = (Round(users, make_request(0), "distributed", own) for _ in range(2))
    lent = Identity.load(tmp_path / "key2") if lends else None
    request = two_seats(run, other, lent)
    gave = [not failed(run, 1, wire.SHARES, request), not failed(other, 1, wire.SHARES, request)]
    assert gave == [lends, False]  # the first seat is the node's own, and the second nobody's


def test_a_deployed_node_takes_one_seat_in_a_sum_whichever_run_asks(
    users, make_request, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = {index: {**named, "data": "/own"} for index, named in key_files(tmp_path).items()}
    run, other = (Round(users, make_request(0), own=own) for _ in range(2))
    for one in (run, other):
        describe(one.grid, one.nodes.values(), 60)
    run.keys()  # three nodes of one machine, each under its own key
    for index in (1, 2):
        assert failed(other, 1, wire.KEYS, wire.keys_request(run.terms, index))
    later = replace(run.terms, session=b"f" * 16)
    assert not failed(other, 1, wire.KEYS, wire.keys_request(later, 2))


# The node's own floor


@pytest.mark.parametrize(
    ("floor", "noise", "answered"),
    [
        ("plain", "server", True),
        ("server", "server", True),
        ("server", "distributed", True),
        ("distributed", "distributed", True),
        ("distributed", "server", False),
    ],
)
@pytest.mark.law("secure sums: a dishonest server opens nothing")
def test_a_node_masks_no_less_than_its_operator_says(users, make_request, floor, noise, answered):
    own = {index: {"least-aggregation": floor} for index in range(1, NODES + 1)}
    run = Round(users, make_request(0), noise=noise, own=own).keys().shares()
    if answered:
        assert run.masked(1)
    else:
        with pytest.raises(ReplyError, match="failure"):
            run.masked(1)


@pytest.mark.parametrize("floor", ["server", "distributed"])
def test_a_node_that_asks_for_masks_answers_no_plain_request(users, make_request, floor):
    nodes = Federation(users, {1: {"least-aggregation": floor}})
    with pytest.raises(ReplyError, match="failure"):
        TrainReply.from_record(nodes.ask(1, TRAIN, make_request(0).to_record()))
    assert TrainReply.from_record(nodes.ask(2, TRAIN, make_request(0).to_record())).total.any()


def test_a_sum_that_presumes_fewer_colluding_nodes_is_refused(users, make_request, caplog):
    own = {1: {"least-colluding": 1}}
    run = Round(users, make_request(0), own=own)
    with caplog.at_level(logging.WARNING):
        assert failed(run, 1, wire.KEYS, wire.keys_request(run.terms, 1))
    assert "least-colluding" in caplog.text


def test_the_rounds_of_secure_sums_are_counted(users, make_request, tmp_path):
    own = {1: {"most-rounds": 1, "rounds-file": str(tmp_path / "rounds")}}
    run = Round(users, make_request(0), own=own).keys().shares().mask()
    assert (tmp_path / "rounds").read_text() == "1\n"
    run.collector = SumCollector(run.terms, run.request.digest())
    run.keys().shares()
    with pytest.raises(ReplyError, match="failure"):
        run.masked(1)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"roster": "/etc/roster"}, "identity"),
        ({"identity": "key"}, "absolute path"),
        ({"least-aggregation": "none"}, "least-aggregation"),
        ({"least-colluding": -1}, "least-colluding"),
    ],
)
def test_a_configuration_that_cannot_be_names_its_key(own, said):
    with pytest.raises(NodeDataError, match=said):
        NodePolicy.of(own)


# Noise of nodes


def test_nodes_draw_who_takes_part_by_themselves(users, make_request):
    """What the server asks for does not matter: it does not know who took part."""
    quiet = {"noise_multiplier": 0.0, "sampling_rate": 1.0}
    own = {index: {"allow-no-noise": True} for index in range(1, NODES + 1)}
    some, none = (make_request(*who, **quiet) for who in ((0, 1), ()))
    totals = []
    for request in (some, none):
        run = Round(users, request, noise="distributed", own=own)
        totals.append(run.keys().shares().mask().agree().reveal().opened()[0])
    everyone = train(users, make_request(*range(7), **quiet)).total
    for total in totals:
        np.testing.assert_allclose(total, NODES * everyone, rtol=0, atol=1e-12)


def test_a_node_adds_no_noise_of_a_fixed_seed_or_none_unless_it_may(users, make_request):
    run = Round(users, make_request(0, noise_multiplier=0.0), noise="distributed").keys().shares()
    with pytest.raises(ReplyError, match="failure"):
        run.masked(1)


# Two messages at a time


@pytest.mark.parametrize("named", [True, False], ids=["data", "an opener of its own"])
@pytest.mark.parametrize("step", ["shares", "mask", "agree", "reveal"])
@pytest.mark.law("secure sums: a dishonest server opens nothing")
def test_a_deployed_node_answers_a_step_once_from_whatever_state(
    users, make_request, tmp_path, monkeypatch, step, named
):
    """The state as it was before the step comes back, as it would for a message beside."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = Round(users, make_request(0), own={1: {"data": "/own"} if named else {}})
    if not named:
        del run.grid._contexts[run.nodes[1]].node_config["num-partitions"]
    describe(run.grid, run.nodes.values(), 60)
    run.keys()
    steps = ["shares", "mask", "agree", "reveal"]
    for before in steps[: steps.index(step)]:
        getattr(run, before)()
    kept = dict(run.state(1)["fedlens.secure_sum"])
    getattr(run, step)()
    run.state(1)["fedlens.secure_sum"] = ConfigRecord(kept)
    if step == "mask":
        with pytest.raises(ReplyError, match="failure"):
            run.masked(1)
        return
    again = {
        "shares": (
            wire.SHARES,
            wire.shares_request(run.terms.session, [*run.collector.adverts.values()]),
        ),
        "agree": (wire.AGREE, wire.agree_request(run.terms.session, [1, 2])),
        "reveal": (wire.REVEAL, wire.reveal_request(run.terms.session, run.collector.signatures)),
    }
    assert failed(run, 1, *again[step])


def test_marks_lie_where_no_other_user_can_put_them(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    replay_guard.take_once(b"secret", "masked")
    with pytest.raises(replay_guard.TakenBefore):
        replay_guard.take_once(b"secret", "masked")
    replay_guard.take_once(b"secret", "agreed")
    (folder,) = tmp_path.iterdir()
    old, new = sorted(folder.iterdir())
    os.utime(old, (0, 0))
    replay_guard.forget_old_marks()
    assert list(folder.iterdir()) == [new]
    replay_guard.take_once(b"run", "round 1", lasting=True)
    for mark in folder.iterdir():
        os.utime(mark, (0, 0))
    replay_guard.forget_old_marks()
    with pytest.raises(replay_guard.TakenBefore):  # a run has no end that a node knows
        replay_guard.take_once(b"run", "round 1", lasting=True)
    assert len(list(folder.iterdir())) == 1
    folder.chmod(0o777)
    with pytest.raises(NodeDataError, match="not this user's alone"):
        replay_guard.take_once(b"other", "masked")


# What travels


def test_whatever_travels_is_read_back_or_refused():
    terms = SumTerms(bytes(16), 1, 3, 2, 2, 0, 5, 40, bytes(32))
    assert wire.read_keys_request(wire.keys_request(terms, 3)) == (terms, 3)
    party = SumParty.new(terms, 1, Identity.new())
    advert = party.advertise()
    assert wire.read_advert(wire.advert_reply(advert)) == advert
    sealed = {2: b"x", 3: b""}
    assert wire.read_sealed(wire.shares_reply(sealed), replied=True) == sealed
    assert wire.read_masked(wire.masked_reply(b"abc")) == b"abc"
    assert wire.read_survivors(wire.agree_request(bytes(16), [3, 1])) == [3, 1]
    assert wire.read_signatures(wire.reveal_request(bytes(16), {1: b"s"})) == {1: b"s"}


@pytest.mark.parametrize(
    "read",
    [wire.read_keys_request, wire.read_advert, wire.read_adverts, wire.read_sealed,
     wire.read_settings, wire.read_masked, wire.read_survivors, wire.read_signature,
     wire.read_signatures, wire.read_reveal, wire.session_of],
)  # fmt: skip
@pytest.mark.parametrize(
    "fields",
    [
        None,
        {},
        {"index": -1, "session": "x", "round": 1.5},
        {"advert": "text", "adverts": [1], "survivors": ["a"], "signature": 3, "session": 5},
        {"adverts": 5, "survivors": 2, "seed.of": [1, 1], "seed": [b"", b""], "sealed": [b""]},
        {"seed.of": [1], "seed": [b"short"], "key.of": [], "key": [], "signature.of": [2**40],
         "signature": [b""], "sealed.of": [True], "sealed": [b""], "survivors": [-1]},
    ],
)  # fmt: skip
def test_what_is_no_message_of_a_secure_sum_is_refused(read, fields):
    record = RecordDict()
    if fields is not None:
        record = wire._record(fields, replied=True)
    with pytest.raises((ReplyError, SecureSumError)):
        read(record)


def test_an_advert_of_another_party_is_not_taken(users, make_request):
    run = Round(users, make_request(0))
    advert = wire.read_advert(run.ask(1, wire.KEYS, wire.keys_request(run.terms, 1)))
    assert isinstance(advert, Advert)
    assert "another party" in run.collector.take_advert(2, advert)


@pytest.mark.law("6: the order of answers changes nothing")
def test_how_many_a_node_drew_by_itself_does_not_show_in_what_it_computes(
    users, make_request, monkeypatch
):
    from fedlens.accountant.noise import most_chosen
    from fedlens.client.node import secure_sum

    asked = []

    def watched(users, request, at_least=0):
        asked.append((len(request.users), at_least))
        return train(users, request, at_least)

    monkeypatch.setattr(secure_sum, "train", watched)
    rate = 0.5
    run = Round(users, make_request(0, sampling_rate=rate), noise="distributed").keys().shares()
    run.mask()
    assert {least for _, least in asked} == {most_chosen(len(users), rate)}
    assert len(asked) == NODES and all(drawn <= least for drawn, least in asked)
