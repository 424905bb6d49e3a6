"""A round of Flower's own simulation: a ClientApp a user, its clipping strategy around FedAvg."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from benchmarks.peers.work import CLIP, NOISE, SIZES, people, plain_steps

CORES = 2
application = ClientApp()


@application.train()
def train_user(message: Message, context: Context) -> Message:
    """One user's local steps."""
    torch.set_num_threads(1)
    critic = SIZES[str(message.content["config"]["size"])].critic()
    critic.load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
    user = int(context.node_config["partition-id"])
    data = people(1000).user(user)
    plain_steps(critic, data.images, data.labels, user)
    reply = {
        "arrays": ArrayRecord(critic.state_dict()),
        "metrics": MetricRecord({"num-examples": 1.0}),
    }
    return Message(content=RecordDict(reply), reply_to=message)  # type: ignore[arg-type]


def flower_round(grid: Grid, name: str, cohort: int) -> Callable[[], object]:
    """One round of the strategy's own parts: a message and a reply a user, clip, noise, mean."""
    inner = FedAvg(
        fraction_train=1e-9,
        fraction_evaluate=0.0,
        min_train_nodes=cohort,
        min_available_nodes=cohort,
    )
    strategy = DifferentialPrivacyServerSideFixedClipping(inner, NOISE, CLIP, cohort)
    arrays = ArrayRecord(SIZES[name].critic().state_dict())

    def one() -> None:
        messages = list(strategy.configure_train(1, arrays, ConfigRecord({"size": name}), grid))
        replies = list(grid.send_and_receive(messages))
        failed = [reply.error for reply in replies if reply.has_error()]
        if failed or len(replies) != cohort:
            raise RuntimeError(f"Flower: {len(replies)} replies of {cohort}, {failed[:1]}")
        strategy.aggregate_train(1, replies)

    return one


def over_flower(nodes: int, measure: Callable[[Grid], None]) -> None:
    """Call ``measure`` in a ServerApp over Flower's simulation of ``nodes`` SuperNodes."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    root = str(Path(__file__).resolve().parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [root, os.environ.get("PYTHONPATH", "")])
    )
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)  # it tells of each of its steps

    failures: list[BaseException] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            while len(list(grid.get_node_ids())) < nodes:
                pass
            measure(grid)
        except BaseException as error:  # Flower would end well whatever happened
            failures.append(error)

    backend: Any = {
        "init_args": {"num_cpus": CORES, "include_dashboard": False, "log_to_driver": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, application, num_supernodes=nodes, backend_config=backend)
    if failures:
        raise failures[0]
