"""The ClientApp's handlers: what they answer, and that a failure says nothing."""

import logging
import time
from dataclasses import replace

import pytest
import torch
from flwr.app import Message

from fedlens.client.app import build_client_app
from fedlens.client.messages import DESCRIBE, TRAIN, Description, ReplyError, TrainReply
from fedlens.client.node.policy import NodePolicy
from fedlens.client.users.protocol import DataOrigin, LocalData
from fedlens.simulations.transports.inprocess import InProcessGrid

ADVERSARY = "patient 4711 has a rare disease"


def ask(app, message_type, content):
    grid = InProcessGrid(app, 1, {})
    (identity,) = grid.push_messages(
        [Message(content, next(iter(grid.get_node_ids())), message_type)]
    )
    (reply,) = grid.pull_messages([identity])
    return reply


def test_describe_and_train_answer(users, make_request):
    app = build_client_app(lambda context: users)
    request = make_request(0, 1)
    described = Description.from_record(ask(app, DESCRIBE, request.to_record()).content)
    assert described == Description(
        partition=0, users=7, shape=(1, 28, 28), classes=10, splits=True, own=True
    )
    reply = TrainReply.from_record(ask(app, TRAIN, request.to_record()).content)
    assert reply.norms.sum() == 2 and reply.total.shape == (64330,)


@pytest.mark.parametrize("message_type", [DESCRIBE, TRAIN])
@pytest.mark.law("4: a reply is a sum, a histogram and nothing else")
def test_an_exceptions_text_type_and_place_stay_on_the_node(
    users, make_request, message_type, caplog, capfd
):
    def failing(context):
        raise KeyError(ADVERSARY)

    app = build_client_app(failing)
    with caplog.at_level(logging.DEBUG):
        reply = ask(app, message_type, make_request(0).to_record())
    everything = (
        repr(vars(reply)) + repr(dict(reply.content)) + caplog.text + "".join(capfd.readouterr())
    )
    assert ADVERSARY not in everything and "KeyError" not in everything
    reader = Description if message_type == DESCRIBE else TrainReply
    with pytest.raises(ReplyError, match="reported a failure"):
        reader.from_record(reply.content)


@pytest.mark.law("4: a reply is a sum, a histogram and nothing else")
def test_a_reply_carries_a_sum_and_a_histogram_and_nothing_else(users, make_request):
    app = build_client_app(lambda context: users)
    content = ask(app, TRAIN, make_request(0, 1, 2).to_record()).content
    assert set(content) == {"config", "arrays"}
    assert dict(content.config_records["config"]) == {"status": "done"}
    assert set(content.array_records["arrays"]) == {"total", "norms"}
    assert not content.metric_records


def test_a_kind_that_the_node_does_not_know_fails_it_without_a_word(
    users, make_request, caplog, capfd
):
    app = build_client_app(lambda context: users)
    with caplog.at_level(logging.DEBUG):
        reply = ask(app, TRAIN, replace(make_request(0), kind="magic").to_record())
    assert set(reply.content) == {"config"} and not reply.has_error()
    assert dict(reply.content.config_records["config"]) == {"status": "failed"}
    assert "magic" not in repr(dict(reply.content)) + caplog.text + "".join(capfd.readouterr())


def test_a_request_without_its_fields_is_a_plain_failure(users):
    from flwr.app import ConfigRecord, RecordDict

    app = build_client_app(lambda context: users)
    reply = ask(app, TRAIN, RecordDict({"config": ConfigRecord({"round": 1})}))
    with pytest.raises(ReplyError):
        TrainReply.from_record(reply.content)


def test_the_floor_that_the_app_was_given_is_read_once_and_holds_replies_back(users, make_request):
    asked = []

    def floor(context):
        asked.append(context)
        return NodePolicy(reply_after=0.5)

    for opened in (lambda _: users, lambda _: None):  # a failure too
        started = time.monotonic()
        ask(build_client_app(opened, floor), TRAIN, make_request(0).to_record())
        assert time.monotonic() - started >= 0.5 and len(asked) == 1
        asked.clear()


class Bare:
    """Users of another package that say all that is asked of them."""

    shape, classes, partition = (1, 28, 28), 10, 0
    sensitive_attribute, sensitive_classes, slice, people = "", 0, "", None
    origin = DataOrigin()

    def __len__(self):
        return 7

    def user_id(self, position):
        return position

    def held(self, position):
        return 0

    def user(self, position, rows=None):
        return LocalData(torch.zeros(0, 1, 28, 28), torch.zeros(0, dtype=torch.int64))


ASKED = [name for name in vars(Bare) if not name.startswith("__")] + ["__len__"]
BOTH = pytest.mark.parametrize("message_type", [DESCRIBE, TRAIN])


def status(users, message_type, request):
    reply = ask(build_client_app(lambda _: users), message_type, request.to_record())
    return reply.content.config_records["config"]["status"]


@BOTH
def test_users_of_another_package_that_say_all_that_is_asked_take_part(make_request, message_type):
    assert status(Bare(), message_type, make_request(0)) == "done"


@BOTH
def test_users_that_do_not_say_all_that_is_asked_are_refused_by_name(
    make_request, message_type, caplog
):
    for lacking in ASKED:
        said = {name: value for name, value in vars(Bare).items() if name != lacking}
        forgetful = type("Forgetful", (), said)()
        assert status(forgetful, message_type, make_request(0)) == "failed"
        assert f"Forgetful lacks {lacking}:" in caplog.text
