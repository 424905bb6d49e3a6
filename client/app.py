"""The Flower ClientApp: handlers around `client.cohort` that never say why they failed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from accountant.noise import NoiseUnsound
from client.cohort import train
from client.data import LocalUsers, NodeDataError, OpenUsers, open_node_users, sensitive_of
from client.filtered import as_asked
from client.messages import Description, TrainRequest, failure

logger = logging.getLogger(__name__)


def build_client_app(open_users: OpenUsers) -> ClientApp:
    """A ClientApp over the users that ``open_users`` finds for a node's context."""
    app = ClientApp()

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        return _answer(message, lambda: _describe(open_users(context)))

    @app.train()
    def train_users(message: Message, context: Context) -> Message:
        return _answer(message, lambda: _train(message, open_users(context)))

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


def _describe(users: LocalUsers) -> RecordDict:
    sensitive, classes = sensitive_of(users)
    return Description(
        partition=users.partition,
        users=len(users),
        shape=users.shape,
        classes=users.classes,
        sensitive_attribute=sensitive,
        sensitive_classes=classes,
    ).to_record()


def _train(message: Message, users: LocalUsers) -> RecordDict:
    request = TrainRequest.from_record(message.content)
    shown = as_asked(users, request)  # filtered, where the request carries a filter
    return train(shown, request).to_record()


app = build_client_app(open_node_users)
