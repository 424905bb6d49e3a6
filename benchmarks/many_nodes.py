"""What a round takes where every user is a node of their own: messages, bytes, seconds.

``python -m benchmarks.many_nodes --nodes 1000``

The real ServerApp and ClientApp exchange Flower's messages in this process, and every message is
counted as it would travel. What a network, a SuperLink and slow devices add is not in it.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Message
from flwr.common.serde import message_to_proto
from rich.console import Console
from rich.table import Table

from fedlens.api.presets import preset_config
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.federation.apps import client_app
from fedlens.simulations.transports.inprocess import InProcessGrid

FEW_STEPS = {
    "data.samples_per_user": 4,
    "tasks.annotator.rounds": 2,
    "tasks.warmup.generator_steps": 1,
    "tasks.warmup.faithful_steps": 1,
    "tasks.critic.generator_steps": 1,
    "tasks.critic.faithful_steps": 1,
    "tasks.annotator.guided_steps": 1,
    "generator.batch": 20,
    "release.samples": 10,
    "release.agreement": 0.0,
}
"""The demo's questions, with hardly any training between them; a node holds four pictures."""


@dataclass
class Traffic:
    """What went to nodes and came back in one kind of question."""

    down: int
    """Bytes of a message to a node: all have one size."""
    up: int
    """Bytes of a reply."""
    messages: int = 0
    answering: float = 0.0
    """Seconds in which nodes computed."""


class CountingGrid(InProcessGrid):
    """Nodes in this process, whose messages are counted."""

    def __init__(self, nodes: int, settings: dict[str, str | int | float | bool]) -> None:
        super().__init__(client_app, nodes, settings)
        self.traffic: dict[str, Traffic] = {}

    def answer(self, message: Message) -> Message:
        """What the message's node replies."""
        kind = "whom it hosts"
        if message.metadata.message_type == "train":
            kind = str(message.content.config_records["config"]["kind"])
        started = time.perf_counter()
        reply = super().answer(message)
        seconds = time.perf_counter() - started
        if kind not in self.traffic:
            self.traffic[kind] = Traffic(*(_bytes(one) for one in (message, reply)))
        self.traffic[kind].answering += seconds
        self.traffic[kind].messages += 1
        return reply


def _bytes(message: Message) -> int:
    return int(message_to_proto(message).ByteSize())


def main() -> None:
    """Train, count, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_nodes")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--schedule", default="card warmup critic annotator", help="tasks")
    args = parser.parse_args()
    nodes = args.nodes
    sized = {"data.users": nodes, "data.nodes": nodes, "privacy.delta": 0.1 / nodes}
    chosen = {**FEW_STEPS, **sized, "schedule": args.schedule}
    config = preset_config("demo").updated(chosen)
    grid = CountingGrid(nodes, config.flat())
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", config)
        train(config, directory, grid)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console = Console()
    console.print(_table(grid.traffic, nodes))
    answering = sum(one.answering for one in grid.traffic.values())
    console.print(
        f"{nodes:,} nodes: {seconds:.1f} s, of which nodes {answering:.1f} s; peak {peak:,.0f} MB"
    )


def _table(traffic: dict[str, Traffic], nodes: int) -> Table:
    table = Table("question", "messages", "down, a node", "up, a node", "up, all", "node's time")
    for kind, one in traffic.items():
        count = one.messages
        table.add_row(
            kind,
            f"{count:,}",
            f"{one.down / 1e3:,.1f} kB",
            f"{one.up / 1e3:,.1f} kB",
            f"{one.up * nodes / 1e6:,.1f} MB",
            f"{1000 * one.answering / count:.1f} ms",
        )
    return table


if __name__ == "__main__":
    main()
