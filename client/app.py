"""The Flower ClientApp: handlers around `fedlens.client.train` that never say why they failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedlens.accountant.noise import NoiseUnsound
from fedlens.client.messages import Description, TrainRequest, failure
from fedlens.client.node import secure_sum
from fedlens.client.node.file import open_node_users
from fedlens.client.node.members import check_members, members_of
from fedlens.client.node.policy import NodePolicy
from fedlens.client.train import train
from fedlens.client.users.protocol import (
    LocalUsers,
    NodeDataError,
    OpenUsers,
    origin_of,
    sensitive_of,
    slice_of,
)
from fedlens.foundation.secure_sum import SecureSumError

logger = logging.getLogger(__name__)


PolicyOf = Callable[[Context], NodePolicy]


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

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        return _answer(
            message,
            lambda: _describe(open_users(context), policy_of(context), context),
        )

    @app.train()
    def train_users(message: Message, context: Context) -> Message:
        started = time.monotonic()
        try:
            return _answer(message, lambda: _train(message, open_users, policy_of, context))
        finally:
            _wait_until(started, context)

    _add_secure_sum(app, open_users, policy_of)
    return app


def _add_secure_sum(app: ClientApp, open_users: OpenUsers, policy_of: PolicyOf) -> None:
    """The five steps of a secure sum, of which the third trains."""

    @app.query("secure_keys")
    def keys(message: Message, context: Context) -> Message:
        asked = message.content
        return _answer(message, lambda: secure_sum.advertise(asked, context, policy_of(context)))

    @app.query("secure_shares")
    def shares(message: Message, context: Context) -> Message:
        asked = message.content
        return _answer(message, lambda: secure_sum.share(asked, context, policy_of(context)))

    @app.train("secure")
    def train_secure(message: Message, context: Context) -> Message:
        started, asked = time.monotonic(), message.content
        try:
            return _answer(
                message,
                lambda: secure_sum.masked(asked, context, policy_of(context), open_users),
            )
        finally:
            _wait_until(started, context)

    @app.query("secure_agree")
    def agree(message: Message, context: Context) -> Message:
        return _answer(
            message, lambda: secure_sum.agree(message.content, context, policy_of(context))
        )

    @app.query("secure_reveal")
    def reveal(message: Message, context: Context) -> Message:
        return _answer(
            message, lambda: secure_sum.reveal(message.content, context, policy_of(context))
        )


def _answer(message: Message, work: Callable[[], RecordDict]) -> Message:
    """The reply of ``work``, or the bare word that it failed.

    An exception's text, type and place can all depend on the data, so nothing of it is sent or
    logged: the node's operator debugs there, with own data, by calling the handlers.
    """
    torch.set_num_threads(1)  # nodes share a machine; more are its operator's choice (`threads`)
    try:
        content = work()
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
    return Message(content=content, reply_to=message)


def _describe(users: LocalUsers, policy: NodePolicy, context: Context) -> RecordDict:
    sensitive, classes = sensitive_of(users)
    origin = origin_of(users)
    return Description(
        partition=users.partition,
        users=len(users),
        shape=users.shape,
        classes=users.classes,
        sensitive_attribute=sensitive,
        sensitive_classes=classes,
        slice=slice_of(users),
        splits=not policy.forbid_splits,
        members=members_of(users, context.node_config),
        own=origin.own,
        federation=origin.federation,
        contract=origin.contract,
    ).to_record()


def _train(
    message: Message, open_users: OpenUsers, policy_of: PolicyOf, context: Context
) -> RecordDict:
    policy = policy_of(context)
    request = policy.accept(TrainRequest.from_record(message.content))
    torch.set_num_threads(policy.threads)
    users = open_users(context)
    check_members(request, users, context)
    reply = train(users, request)
    policy.check_length(len(reply.total))  # a task's size shows in what it computes alone
    return reply.to_record()


def _wait_until(started: float, context: Context) -> None:
    """Hold a reply, a failure's too, until the node's fixed time."""
    try:
        reply_after = own_policy(context).reply_after
    except NodeDataError:  # said already, where the request was refused
        return
    time.sleep(max(0.0, started + reply_after - time.monotonic()))


app = build_client_app(open_node_users)
