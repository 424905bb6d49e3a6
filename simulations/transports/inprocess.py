"""A Grid that calls the real ClientApp in this process: no Ray, no ports, starts at once.

It makes messages as Flower's own grids do, which takes a few of Flower's internals; they are all in
this file, and Flower's version is pinned.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedlens.foundation.profile import span

FIRST_NODE_ID = SUPERLINK_NODE_ID + 1
CLIENT_RAISED = 2
"""Flower's code of an error reply for a ClientApp that raised."""
Setting = bool | float | int | str


class InProcessGrid(Grid):
    """``nodes`` simulated SuperNodes that answer as soon as they are asked."""

    def __init__(
        self,
        client_app: ClientApp,
        nodes: int,
        run_config: Mapping[str, Setting],
        node_config: Mapping[str, Setting] | None = None,
    ) -> None:
        """Begin with nodes that kept nothing.

        Args:
            client_app: answers for each of them.
            nodes: how many.
            run_config: what they are told of the run.
            node_config: what each node's operator would state beside its number, such as the floor
                below which it refuses (`fedlens.client.node.policy`).
        """
        self._app, self._replies = client_app, dict[str, Message]()
        self._run = Run.create_empty(1)
        TaskIdentity.run_id, TaskIdentity.task_id = self._run.run_id, 1
        TaskIdentity.node_id = SUPERLINK_NODE_ID
        self._contexts = {
            FIRST_NODE_ID + partition: Context(
                run_id=self._run.run_id,
                node_id=FIRST_NODE_ID + partition,
                node_config={
                    **(node_config or {}),
                    "partition-id": partition,
                    "num-partitions": nodes,
                },
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for partition in range(nodes)
        }

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes; they are never offline."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Have each node answer its message; returns the messages' ids."""
        return [self._deliver(message) for message in messages]

    def _deliver(self, message: Message) -> str:
        identity = self.identify(message)
        with span("nodes"):
            self.keep_reply(message, self.answer(message))
        return identity

    def identify(self, message: Message) -> str:
        """Give a message the identity that its reply is asked for by."""
        identity = uuid.uuid4().hex
        message.metadata.__dict__["_message_id"] = identity
        return identity

    def keep_reply(self, message: Message, reply: Message) -> None:
        """Keep a reply until it is pulled."""
        self._replies[message.metadata.message_id] = reply

    def answer(self, message: Message) -> Message:
        """What the message's node replies."""
        context = self._contexts[message.metadata.dst_node_id]
        try:
            return self._app(message, context)
        except Exception:  # as Flower does, but without the exception's text
            return Message(Error(CLIENT_RAISED, "the client failed"), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages, each once."""
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push, then pull; there is nothing to wait for."""
        return self.pull_messages(self.push_messages(messages))
