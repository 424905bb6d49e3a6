"""Canary users: made-up people whose update is a random direction, far longer than the clip.

They go through the code that real users go through: the ClientApp, the sum of clipped updates, the
Poisson draw, the server's checks of replies and its noise. One thing alone is theirs: on a node of
canaries the task's local training is replaced by the canary's own update, as it stands, so that
clipping has something to do and a score something to look for. No data set is opened, no ledger is
written, and what is learned is of canaries only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from flwr.app import Context
from numpy.typing import NDArray
from torch import Tensor

from client.app import build_client_app
from client.data import LocalData, LocalUsers, NodeDataError, Rows
from client.messages import TrainRequest
from client.record_batches import DrawnRecords
from client.tasks import CLIENT_TASKS
from client.tasks.protocol import ClientTask, TaskSettings
from server.aggregation import Aggregate
from server.config.privatizer import FederatedPrivatizer, FilterConfig
from server.config.tree import Config
from server.enrolment import enrol
from server.learner import Asked
from server.mechanism import denominator
from server.private_step import PrivateStep
from simulations.audits.schedule import Schedule
from simulations.transports.inprocess import InProcessGrid

OVERLONG = 10.0
"""Norm of a canary's update over the clipping norm."""

NOTHING = Asked(TaskSettings(), {}, None)
"""A request without settings: canaries read none."""

Floats = NDArray[np.float64]
Directions = NDArray[np.float32]
Coins = NDArray[np.bool_]


@dataclass
class CanaryUsers:
    """A node's canaries; those whose coin fell the other way are enrolled and hold nothing."""

    directions: Directions
    """Raw updates, float32 [canaries, d]."""
    included: Coins
    """bool [canaries]."""
    partition: int
    asked: NDArray[np.int64]
    """How often each was asked for, int64 [canaries]: whom the sampler drew."""
    classes: int = 1
    sensitive_attribute: str = ""
    """What the run hides, where it does: canaries claim to know it, as its users do."""
    sensitive_classes: int = 2

    @property
    def shape(self) -> tuple[int, int, int]:
        """An update, as the only image of a canary."""
        return (1, 1, self.directions.shape[1])

    def __len__(self) -> int:
        """Canaries on the node, included or not."""
        return len(self.directions)

    def user_id(self, position: int) -> int:
        """A canary's place: none comes or goes."""
        return position

    def held(self, position: int) -> int:
        """The update alone, where the canary is included."""
        return int(self.included[position])

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The canary's update as its only record, or no record."""
        self.asked[position] += 1
        held = 1 if self.included[position] else 0
        update = torch.from_numpy(self.directions[position])
        images = update.view(1, 1, 1, -1)[:held]
        return LocalData(images, torch.zeros(held, dtype=torch.int64))


class CanaryTask:
    """The `client.tasks.protocol.ClientTask` of canaries: the update is the record."""

    chunk = 64

    def __init__(self, size: int) -> None:
        self._size = size

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each canary's raw update; zeros for one that holds nothing."""
        rows = torch.zeros(len(cohort), self._size)
        for row, data in zip(rows, cohort, strict=True):
            if len(data.labels):
                row.copy_(data.images[0].flatten())
        return rows

    def record_rows(self, drawn: DrawnRecords) -> Tensor:
        """There is none: canaries are users."""
        raise NodeDataError("canaries are users")


@contextmanager
def canaries_answer(kind: str) -> Iterator[None]:
    """Let canary users alone answer requests for a kind of task with their own updates."""
    real = CLIENT_TASKS[kind]

    def chosen(users: LocalUsers, request: TrainRequest) -> ClientTask:
        if isinstance(getattr(users, "users", users), CanaryUsers):  # below the cap on records
            return CanaryTask(users.shape[2])
        return real(users, request)

    with CLIENT_TASKS.replaced(kind, chosen):
        yield


class CanaryFederation:
    """One federation of canaries and the real private step over it."""

    def __init__(self, schedule: Schedule, directions: Directions, included: Coins) -> None:
        """Enrol the canaries as a run enrols its users.

        Args:
            schedule: whose mechanism (clip, noise, sampling) is carried out.
            directions: raw updates, float32 [m, d].
            included: bool [m], who holds an update at all.
        """
        count, size = directions.shape
        staged = replace(schedule, config=stage_config(schedule.config, count))
        config, self._task = staged.config, staged.task
        bounds = np.linspace(0, count, config.data.nodes + 1).astype(int)
        self.asked = np.zeros(count, dtype=np.int64)
        filter_ = config.privatizer
        sensitive = filter_.sensitive_attribute if isinstance(filter_, FilterConfig) else ""
        self._users = [
            CanaryUsers(
                directions[a:b], included[a:b], node, self.asked[a:b], sensitive_attribute=sensitive
            )
            for node, (a, b) in enumerate(pairwise(bounds))
        ]
        grid = InProcessGrid(build_client_app(self._open), config.data.nodes, config.flat())
        self._denominator = denominator(config, self._task.settings)
        federation = enrol(grid, config)
        self._step = PrivateStep(config, self._task, grid, federation, size, float("inf"))

    def _open(self, context: Context) -> LocalUsers:
        return self._users[int(context.node_config["partition-id"])]

    def gathered(self, number: int) -> Aggregate:
        """A round's sum of canaries' updates before its noise, and which replies were refused."""
        with canaries_answer(self._task.settings.kind):
            return self._step.gather(number, NOTHING)

    def released(self, number: int) -> tuple[Floats, int]:
        """A round's release times its fixed denominator: a noised sum, float64 [d]; refusals."""
        aggregate = self.gathered(number)
        release = self._step.release(aggregate, number)
        return release * self._denominator, len(aggregate.refused)


def stage_config(config: Config, users: int) -> Config:
    """The run's mechanism over ``users`` canaries; noise from the operating system always."""
    trained = isinstance(config.privatizer, FederatedPrivatizer)
    hidden = {} if trained else {"privatizer.kind": "none"}  # it has no mechanism of its own
    return config.updated(
        {
            **hidden,
            "data.users": users,
            "data.nodes": min(config.data.nodes, users),
            "privacy.delta": min(config.privacy.delta, 1 / users),
            "privacy.epsilon_budget": 0.0,
            "privacy.fixed_seed": -1,
        }
    )


def random_directions(
    count: int, size: int, norm: float, source: np.random.Generator
) -> Directions:
    """Isotropic random vectors of a given norm, float32 [count, size]."""
    rows = source.standard_normal((count, size), dtype=np.float32)
    rows *= np.float32(norm) / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
