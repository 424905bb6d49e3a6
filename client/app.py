"""The Flower ClientApp: handlers around `client.cohort` that never say why they failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from accountant.noise import NoiseUnsound
from client.cohort import train
from client.data import (
    LocalUsers,
    NodeDataError,
    OpenUsers,
    origin_of,
    sensitive_of,
    slice_of,
)
from client.messages import Description, TrainRequest, failure
from client.node_file import open_node_users
from client.node_policy import NodePolicy

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
            lambda: _describe(open_users(context), splits=not policy_of(context).forbid_splits),
        )

    @app.train()
    def train_users(message: Message, context: Context) -> Message:
        started = time.monotonic()
        try:
            return _answer(message, lambda: _train(message, open_users, policy_of, context))
        finally:
            _wait_until(started, context)

    return app


def _answer(message: Message, work: Callable[[], RecordDict]) -> Message:
    """The reply of ``work``, or the bare word that it failed.

    An exception's text, type and place can all depend on the data, so nothing of it is sent or
    logged: the node's operator debugs there, with own data, by calling the handlers.
    """
    torch.set_num_threads(1)  # nodes share a machine; also keeps sums equal on every transport
    try:
        content = work()
    except (NodeDataError, NoiseUnsound) as error:  # neither says anything of the data
        logger.warning("this node cannot take part: %s", error)
        content = failure()
    except Exception:  # whatever it is, it may hold data
        logger.warning("a handler failed; its reason stays on this node")
        content = failure()
    return Message(content=content, reply_to=message)


def _describe(users: LocalUsers, *, splits: bool) -> RecordDict:
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
        splits=splits,
        own=origin.own,
        federation=origin.federation,
        contract=origin.contract,
    ).to_record()


def _train(
    message: Message, open_users: OpenUsers, policy_of: PolicyOf, context: Context
) -> RecordDict:
    request = policy_of(context).accept(TrainRequest.from_record(message.content))
    return train(open_users(context), request).to_record()


def _wait_until(started: float, context: Context) -> None:
    """Hold a reply, a failure's too, until the node's fixed time."""
    try:
        reply_after = own_policy(context).reply_after
    except NodeDataError:  # said already, where the request was refused
        return
    time.sleep(max(0.0, started + reply_after - time.monotonic()))


app = build_client_app(open_node_users)
