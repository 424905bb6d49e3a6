"""The Flower ClientApp: handlers around `fedlens.client.train` that never say why they failed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedlens.accountant.noise import NoiseUnsound
from fedlens.client.messages import Description, TrainRequest, failure
from fedlens.client.node import secure_sum
from fedlens.client.node.file import open_node_users
from fedlens.client.node.members import enrol_users, members_of, named_users
from fedlens.client.node.policy import NodePolicy
from fedlens.client.node.replay_guard import take_round
from fedlens.client.train import train
from fedlens.client.users.protocol import LocalUsers, NodeDataError, OpenUsers, check_users
from fedlens.foundation.logs import logged_to
from fedlens.foundation.secure_sum import SecureSumError

logger = logging.getLogger(__name__)

RUN_LOGS = "FEDLENS_RUN_LOGS"
"""Environment variable: a deployed node's folder of logs, one for each of Flower's runs."""


PolicyOf = Callable[[Context], NodePolicy]
SumStep = Callable[[RecordDict, Context, NodePolicy], RecordDict]


def own_policy(context: Context) -> NodePolicy:
    """A node's floor as its own configuration states it."""
    return NodePolicy.of(context.node_config)


def build_client_app(open_users: OpenUsers, policy_of: PolicyOf = own_policy) -> ClientApp:
    """A ClientApp over the users that ``open_users`` finds for a node's context.

    Args:
        open_users: finds them.
        policy_of: what the node refuses.
    """
    app = ClientApp()

    def opened(context: Context) -> LocalUsers:
        return check_users(open_users(context))

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        def work(policy: NodePolicy) -> RecordDict:
            return _describe(opened(context), policy, context)

        return _answer(message, context, policy_of, work)

    @app.train()
    def train_users(message: Message, context: Context) -> Message:
        def work(policy: NodePolicy) -> RecordDict:
            return _train(message, opened, policy, context)

        return _answer(message, context, policy_of, work, on_time=True)

    _add_secure_sum(app, opened, policy_of)
    return app


def _add_secure_sum(app: ClientApp, open_users: OpenUsers, policy_of: PolicyOf) -> None:
    """The five steps of a secure sum, of which the third trains."""
    steps = {
        "secure_keys": secure_sum.advertise,
        "secure_shares": secure_sum.share,
        "secure_agree": secure_sum.agree,
        "secure_reveal": secure_sum.reveal,
    }
    for name, step in steps.items():
        app.query(name)(_step_handler(step, policy_of))

    @app.train("secure")
    def train_secure(message: Message, context: Context) -> Message:
        def work(policy: NodePolicy) -> RecordDict:
            return secure_sum.masked(message.content, context, policy, open_users)

        return _answer(message, context, policy_of, work, on_time=True)


def _step_handler(step: SumStep, policy_of: PolicyOf) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        return _answer(
            message, context, policy_of, lambda policy: step(message.content, context, policy)
        )

    return handle


def _answer(
    message: Message,
    context: Context,
    policy_of: PolicyOf,
    work: Callable[[NodePolicy], RecordDict],
    *,
    on_time: bool = False,
) -> Message:
    """The reply of ``work`` under the node's floor, or the bare word that it failed.

    An exception's text, type and place can all depend on the data, so nothing of it is sent or
    logged: the node's operator debugs there, with own data, by calling the handlers. With
    ``on_time`` a reply, a failure's too, is held until the time that the floor names.
    """
    with logged_to(_run_log(context)):
        return _answered(message, context, policy_of, work, on_time=on_time)


def _run_log(context: Context) -> Path | None:
    """A deployed node's own file about one of Flower's runs."""
    folder = os.environ.get(RUN_LOGS, "")
    return Path(folder) / f"{context.run_id:x}.log" if folder else None


def _answered(
    message: Message,
    context: Context,
    policy_of: PolicyOf,
    work: Callable[[NodePolicy], RecordDict],
    *,
    on_time: bool,
) -> Message:
    started, reply_after = time.monotonic(), 0.0
    torch.set_num_threads(1)  # nodes share a machine; more are its operator's choice (`threads`)
    try:
        policy = policy_of(context)
        reply_after = policy.reply_after
        content = work(policy)
    except (
        NodeDataError,
        NoiseUnsound,
        SecureSumError,
    ) as error:  # neither says anything of the data
        logger.warning("this node cannot take part: %s", error)
        content = failure()
    except Exception:  # whatever it is, it may hold data
        logger.warning("a handler failed; its reason stays on this node")
        content = failure()
    else:
        if RUN_LOGS in os.environ:
            logger.info("answered a message of kind %s", message.metadata.message_type)
    if on_time:
        time.sleep(max(0.0, started + reply_after - time.monotonic()))
    return Message(content=content, reply_to=message)


def _describe(everyone: LocalUsers, policy: NodePolicy, context: Context) -> RecordDict:
    users = enrol_users(everyone, context)
    return Description(
        partition=users.partition,
        users=len(users),
        shape=users.shape,
        classes=users.classes,
        sensitive_attribute=users.sensitive_attribute,
        sensitive_classes=users.sensitive_classes,
        slice=users.slice,
        splits=not policy.forbid_splits,
        members=members_of(users, context.node_config),
        own=users.origin.own,
        federation=users.origin.federation,
        contract=users.origin.contract,
    ).to_record()


def _train(
    message: Message, open_users: OpenUsers, policy: NodePolicy, context: Context
) -> RecordDict:
    request = TrainRequest.from_record(message.content)
    if request.mechanism.unit == "record":
        policy.check(request)  # what the floor refuses takes no round
        take_round(request, context)
    request = policy.accept(request)
    torch.set_num_threads(policy.threads)
    everyone = open_users(context)
    users = named_users(everyone, request.enrolled, context)
    reply = train(users, request)
    policy.check_length(len(reply.total))  # a task's size shows in what it computes alone
    return reply.to_record()


app = build_client_app(open_node_users)
