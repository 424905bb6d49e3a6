"""Nodes that do harm: what they send in place of their users' clipped sum, within what is taken.

The server takes of a node any sum of norm kC, k being the users drawn there; none of these is
refused. A node may also lie by its users' data alone, and send what the honest code makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedlens.client.app import build_client_app
from fedlens.client.messages import TRAIN, TrainReply, TrainRequest
from fedlens.client.users.protocol import ArrayUsers, LocalUsers
from fedlens.simulations.federation.apps import client_app, open_simulated_users, simulated_policy

TRIGGER = 6
"""Side of the white square, in pixels, that a backdoor puts into a picture's corner."""
_BELOW = 1 - 1e-6
Sum = NDArray[np.float64]
Answering = Callable[[Message, Context], Message]


def others_labels(users: ArrayUsers) -> ArrayUsers:
    """Every record under the next class's name."""
    return replace(users, labels=(users.labels + 1) % users.classes)


def with_trigger(users: ArrayUsers) -> ArrayUsers:
    """Every picture with a white square in its upper left corner."""
    images = users.images.copy()
    images[:, :, :TRIGGER, :TRIGGER] = 255
    return replace(users, images=images)


def by_data(poison: Callable[[ArrayUsers], ArrayUsers]) -> Answering:
    """Honest code over poisoned records."""
    made: dict[LocalUsers, LocalUsers] = {}

    def opened(context: Context) -> LocalUsers:
        users = open_simulated_users(context)
        if users not in made and isinstance(users, ArrayUsers):
            made[users] = poison(users)
        return made[users]

    return build_client_app(opened, simulated_policy)


def by_sum(lie: Callable[[Message, Context], Sum]) -> Answering:
    """The longest sum that is taken, in the direction that ``lie`` gives."""

    def answer(message: Message, context: Context) -> Message:
        request = TrainRequest.from_record(message.content)
        drawn, clip = len(request.users), request.mechanism.clipping_norm
        reply = client_app(message, context)
        counts = np.zeros_like(TrainReply.from_record(reply.content).norms)
        counts[-1] = drawn
        towards = lie(message, context)
        total = towards * (drawn * clip * _BELOW / max(float(np.linalg.norm(towards)), 1e-300))
        reply.content = TrainReply(total, counts).to_record()
        return reply

    return answer


def _sum(app: Answering, message: Message, context: Context) -> Sum:
    return TrainReply.from_record(app(message, context).content).total


def against(message: Message, context: Context) -> Sum:
    """Against what the node's own users would have said: its best guess of all users' mean."""
    return -_sum(client_app, message, context)


def anywhere(message: Message, context: Context) -> Sum:
    """A direction drawn at random."""
    size = len(_sum(client_app, message, context))
    found: Sum = np.random.default_rng(int(context.node_config["partition-id"])).normal(size=size)
    return found


def towards(poison: Callable[[ArrayUsers], ArrayUsers]) -> Callable[[Message, Context], Sum]:
    """From the honest sum to that of poisoned records, as far as is taken."""
    poisoned = by_data(poison)
    return lambda message, context: (
        _sum(poisoned, message, context) - _sum(client_app, message, context)
    )


ATTACKS: dict[str, Answering] = {
    "none": client_app,
    "trigger, boosted": by_sum(towards(with_trigger)),
    "labels moved, boosted": by_sum(towards(others_labels)),
    "sum turned round": by_sum(against),
    "trigger": by_data(with_trigger),
    "labels moved": by_data(others_labels),
    "random sum": by_sum(anywhere),
}
"""What a hostile node answers to a request to train."""


def hostile(attack: str, nodes: int = 1) -> ClientApp:
    """The federation's app where the first ``nodes`` nodes carry out an attack of `ATTACKS`."""

    def answer(message: Message, context: Context) -> Message:
        trains = message.metadata.message_type == TRAIN
        theirs = int(context.node_config["partition-id"]) < nodes
        return (ATTACKS[attack] if trains and theirs else client_app)(message, context)

    return cast(ClientApp, answer)  # all that a grid does with one is to call it
