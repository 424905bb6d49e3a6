"""A grid that hears what nodes reply, and can have one of them reply with something else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from flwr.app import Message, RecordDict

from fedlens.client.messages import TRAIN
from fedlens.client.secure_messages import MASKED
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.protocol import ClientTaskFactory
from fedlens.simulations.transports.inprocess import FIRST_NODE_ID, InProcessGrid


class ListeningGrid(InProcessGrid):
    """In-process nodes whose last replies are kept."""

    heard: list[RecordDict]
    """The plain sums of the last round, in the order in which nodes were asked."""
    answering: tuple[str, ClientTaskFactory] | None = None
    """A kind of task, and what makes the object that answers for it on nodes; None for its own."""
    hostile: Callable[[RecordDict], RecordDict] | None = None
    """What the last node makes of its sum, masked or not, before it sends it; None: nothing."""

    def push_messages(self, messages):  # type: ignore[no-untyped-def]
        """Have each node answer its message; returns the messages' ids."""
        self.heard = []
        with CLIENT_TASKS.replaced(*self.answering) if self.answering else nullcontext():
            return super().push_messages(messages)

    def _deliver(self, message: Message) -> str:
        identity = super()._deliver(message)
        reply = self._replies[identity]
        asked = message.metadata.message_type
        if asked not in (TRAIN, MASKED) or not reply.has_content():
            return identity
        last = message.metadata.dst_node_id == FIRST_NODE_ID + len(self._contexts) - 1
        if self.hostile is not None and last:
            reply.content = self.hostile(reply.content)
        if asked == TRAIN:
            self.heard.append(reply.content)
        return identity
