"""One round trip with the nodes over any Grid, with a deadline and without Flower's long sleeps."""

from __future__ import annotations

import time
from collections.abc import Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

LONGEST_PAUSE = 0.2


def exchange(
    grid: Grid,
    contents: Mapping[int, RecordDict],
    *,
    message_type: str,
    group: str,
    deadline: float,
) -> dict[int, RecordDict]:
    """Send each node its content and gather the replies that come in time.

    Args:
        grid: any transport.
        contents: by Flower node id.
        message_type: which handler of the ClientApp answers.
        group: Flower's group id, here the round.
        deadline: seconds to wait. A node that has not answered by then, or whose reply is an
            error, is missing from the result; nothing of its error is read or logged.
    """
    messages = [
        Message(content=content, message_type=message_type, dst_node_id=node, group_id=group)
        for node, content in contents.items()
    ]
    pushed = list(grid.push_messages(messages)) if messages else []
    waiting = {identity: node for identity, node in zip(pushed, contents, strict=True) if identity}
    replies: dict[int, RecordDict] = {}
    end, pause = time.monotonic() + deadline, 0.0
    while waiting and time.monotonic() < end:
        if pause:
            time.sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause + 0.005)
        for reply in grid.pull_messages(list(waiting)):
            # filed under the node that was asked, whatever the reply says of its origin
            node = waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and reply.has_content():
                replies[node] = reply.content
    return replies


def wait_for_nodes(grid: Grid, wanted: int, deadline: float) -> list[int]:
    """Ids of the nodes once at least ``wanted`` are there, or those that came by the deadline."""
    end = time.monotonic() + deadline
    while True:
        nodes = list(grid.get_node_ids())
        if len(nodes) >= wanted or time.monotonic() >= end:
            return nodes
        time.sleep(LONGEST_PAUSE)
