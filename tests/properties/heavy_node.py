"""A node over a file in a process of its own: how long requests take, and how much memory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from flwr.app import Message
from people import staged

from fedlens.client.app import build_client_app
from fedlens.client.messages import TRAIN, TrainReply, TrainRequest
from fedlens.client.node.file import open_node_users
from fedlens.server.config.mechanism import mechanism
from fedlens.server.federation.enrolment import describe
from fedlens.simulations.transports.inprocess import InProcessGrid


def main(path: str, kinds: str, unit: str, times: int, enrolled: int = 50) -> None:
    """Answer a request of each kind of task; a line for each."""
    torch.set_num_threads(1)
    for kind in kinds.split(","):
        answer(path, kind, unit, times, enrolled)


def answer(path: str, kind: str, unit: str, times: int, enrolled: int) -> None:
    """Answer a request for 50 users some times over, and print what it took."""
    changes = {"sampling_rate": 0.001} if unit == "record" else {}
    stage = staged(kind, unit, **changes)
    request = TrainRequest(
        round=1,
        users=tuple(range(0, enrolled, enrolled // 50))[:50],
        kind=stage.task.settings.kind,
        mechanism=mechanism(stage.config, stage.task.settings),
        settings=stage.asked.settings.model_dump(),
        weights=stage.asked.weights,
        seed=0,
        enrolled=enrolled,
        key=b"key",
        records_per_user=4,
        filter=stage.asked.filter,
    )
    # the peak so far is that of preparing the task: begin anew (man 5 proc)
    Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    context = SimpleNamespace(run_config={}, node_config={"data": path})
    app = build_client_app(lambda _: open_node_users(context))
    grid = InProcessGrid(app, 1, {})
    describe(grid, grid.get_node_ids(), 60)
    taken = []
    for _ in range(times):
        message = Message(request.to_record(), next(iter(grid.get_node_ids())), TRAIN)
        started = time.perf_counter()
        (identity,) = grid.push_messages([message])
        taken.append(time.perf_counter() - started)
        (reply,) = grid.pull_messages([identity])
        TrainReply.from_record(reply.content)
    print(json.dumps({"seconds": taken, "megabytes": (kilobytes("VmHWM") - before) / 1024}))


def kilobytes(what: str) -> int:
    """A line of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
