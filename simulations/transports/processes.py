"""Nodes in processes of their own, so that those of one machine work at the same time.

Each process answers for the same nodes in every round, by an `InProcessGrid` of its own, so that
what a node keeps between rounds stays with it. The result is that of one process, bit for bit: no
node's answer depends on where it is made.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from flwr.app import Error, Message
from flwr.clientapp import ClientApp

from fedlens.foundation.profile import span
from fedlens.simulations.transports.inprocess import (
    CLIENT_RAISED,
    FIRST_NODE_ID,
    InProcessGrid,
    Setting,
)

ClientAppFactory = Callable[[], ClientApp]
"""Makes the app that nodes run; a function of a module, which processes import."""


class ProcessesGrid(InProcessGrid):
    """``nodes`` simulated SuperNodes, dealt out to processes."""

    def __init__(
        self,
        make_app: ClientAppFactory,
        nodes: int,
        run_config: Mapping[str, Setting],
        processes: int,
    ) -> None:
        """Start the processes; `close` ends them.

        Args:
            make_app: makes the app that answers for each node.
            nodes: how many.
            run_config: what they are told of the run.
            processes: how many share them, at least 1.
        """
        super().__init__(ClientApp(), nodes, run_config)
        self._lines: list[Connection] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        for _ in range(min(processes, nodes)):
            ours, theirs = multiprocessing.Pipe()
            self._workers.append(_started(theirs))
            theirs.close()
            ours.send((make_app, nodes, dict(run_config)))
            self._lines.append(ours)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Have each process answer its nodes' messages; returns the messages' ids."""
        asked = list(messages)
        identities = [self.identify(message) for message in asked]
        shares: list[list[Message]] = [[] for _ in self._lines]
        for message in asked:
            number = message.metadata.dst_node_id - FIRST_NODE_ID
            shares[number % len(self._lines)].append(message)
        with span("nodes"):
            for line, share in zip(self._lines, shares, strict=True):
                _send(line, share)
            for line, share in zip(self._lines, shares, strict=True):
                for message, reply in zip(share, _received(line, share), strict=True):
                    self.keep_reply(message, reply)
        return identities

    def close(self) -> None:
        """End the processes."""
        for line in self._lines:
            line.close()
        for worker in self._workers:
            try:
                worker.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


@contextmanager
def several_processes(
    make_app: ClientAppFactory, nodes: int, run_config: Mapping[str, Setting], processes: int
) -> Iterator[ProcessesGrid]:
    """A grid whose processes end with the context."""
    grid = ProcessesGrid(make_app, nodes, run_config, processes)
    try:
        yield grid
    finally:
        grid.close()


def _started(line: Connection) -> subprocess.Popen[bytes]:
    """A process of this Python and its path; it imports the script that runs here in no case."""
    number = line.fileno()
    code = f"from {__name__} import answer; answer({number})"
    return subprocess.Popen(  # noqa: S603  (our own program and arguments)
        [sys.executable, "-c", code],
        pass_fds=[number],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
    )


def answer(number: int) -> None:
    """What a process does until its line, a file descriptor, is closed."""
    line = Connection(number)
    try:
        make_app, nodes, run_config = line.recv()
        grid = InProcessGrid(make_app(), nodes, run_config)
        while True:
            messages: list[Message] = line.recv()
            line.send([grid.answer(message) for message in messages])
    except (EOFError, BrokenPipeError):
        return


def _send(line: Connection, messages: Sequence[Message]) -> None:
    try:
        line.send(messages)
    except OSError:  # the process is gone; its nodes do not answer
        return


def _received(line: Connection, messages: Sequence[Message]) -> list[Message]:
    try:
        replies: list[Message] = line.recv()
    except (EOFError, OSError):
        gone = Error(CLIENT_RAISED, "the client's process ended")
        replies = [Message(gone, reply_to=message) for message in messages]
    return replies
