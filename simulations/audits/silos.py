"""Record mode's noise, as the nodes add it: silos without a record through the real handlers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.app import Context

from accountant.events import LEAST_NOISE
from client.app import build_client_app
from client.data import LocalData, LocalUsers, Rows
from server.config.tasks import WganConfig
from server.enrolment import enrol
from server.learner import Learner
from server.mechanism import denominator
from server.private_step import PrivateStep
from simulations.audits.canaries import Floats
from simulations.audits.probes import SILENT_ROUNDS, Observer, two_lives
from simulations.audits.schedule import Schedule
from simulations.transports.inprocess import InProcessGrid

SHAPE, CLASSES = (1, 28, 28), 10
_NO_LIMIT = 1e30
_SMALL_CLIP = 0.01
_GLARE = 1e6
"""Pixels of a canary record, far above the [-1, 1] of real ones: its gradient is huge."""
WHY_NO_CANARIES = (
    "record mode has no canary users: a record's gradient is what the critic makes of an image, so "
    "its direction cannot be chosen; its nodes' clipping and noise are audited instead"
)


@dataclass(frozen=True)
class Silo:
    """A node whose only user holds ``records`` glaring records."""

    records: int
    partition: int = 0
    shape: tuple[int, int, int] = SHAPE
    classes: int = CLASSES

    def __len__(self) -> int:
        """One user."""
        return 1

    def user_id(self, position: int) -> int:
        """The only user's."""
        return position

    def held(self, position: int) -> int:
        """The records."""
        return self.records

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The records, all alike."""
        count = self.records if rows is None else len(rows)
        glare = torch.linspace(-_GLARE, _GLARE, 28 * 28).view(1, *SHAPE)
        labels = torch.zeros(count, dtype=torch.int64)
        return LocalData(glare.repeat(count, 1, 1, 1), labels)


def silent_silos(
    schedule: Schedule, *, rounds: int = SILENT_ROUNDS, observer: Observer | None = None
) -> Floats:
    """What a silo without records replies, times the fixed denominator: its noise, over zC.

    For the ``wgan`` critic that is one local step from a critic of zeros, at learning rate and
    denominator 1 and without limits on the weights, so that the change of the critic is the step's
    noise, rounded to float32. Two lives of the mechanism, as before and after a restart.

    Returns:
        float64 [2 · rounds, P].
    """

    def begin() -> Callable[[int], Floats]:
        stage = _NodeFederation(schedule, Silo(0))
        stage.begin_from_zeros()
        return stage.released

    return two_lives(begin, schedule.event.noise_multiplier, rounds, observer)


def silo_clip_probe(schedule: Schedule) -> float:
    """One glaring record, drawn for sure, next to no noise: the norm of what arrives over the clip.

    The ``wgan`` critic's gradient is huge then. The rows of the other kinds are bounded by
    themselves, so they are clipped to a hundredth at most.
    """
    quiet = schedule.with_mechanism(sampling_rate=1.0, noise_multiplier=LEAST_NOISE)
    if not isinstance(schedule.task.settings, WganConfig):
        clip = min(schedule.event.clipping_norm, _SMALL_CLIP)
        quiet = quiet.with_mechanism(clipping_norm=clip)
    return float(np.linalg.norm(_NodeFederation(quiet, Silo(1)).released(1)))


def single_step(schedule: Schedule) -> dict[str, object]:
    """Where nodes step a critic: one step at learning rate 1 without limits on the weights."""
    if not isinstance(schedule.task.settings, WganConfig):
        return {}
    prefix = f"tasks.{schedule.name}"
    return {
        f"{prefix}.local_steps": 1,
        f"{prefix}.local_rate": 1.0,
        f"{prefix}.weight_limit": _NO_LIMIT,
    }


class _NodeFederation:
    """One node, and the real private step of the task over it."""

    def __init__(self, schedule: Schedule, silo: Silo) -> None:
        config = schedule.config.updated(
            {
                "data.users": 1,
                "data.nodes": 1,
                "privacy.fixed_seed": -1,
                "privacy.epsilon_budget": 0.0,
                "privacy.population": "",
                "data.records_per_node": 1,
                **single_step(schedule),
            }
        )
        task = replace(schedule, config=config).task

        def open_users(context: Context) -> LocalUsers:
            return silo

        grid = InProcessGrid(build_client_app(open_users), 1, config.flat())
        federation = enrol(grid, config)
        learner = Learner(config, federation)
        learner.prepare(task)
        self.asked, state = learner.asked(task), learner.task(task)
        self._step = PrivateStep(config, task, grid, federation, state.size, math.inf)
        self._scale = denominator(config, task.settings) / task.settings.clipping_norm
        self._steps = isinstance(task.settings, WganConfig)

    def begin_from_zeros(self) -> None:
        """A critic of zeros, where nodes step one: its change is then the step's noise."""
        if self._steps:
            zeros = np.zeros_like(self.asked.weights["critic"])
            self.asked = replace(self.asked, weights={**self.asked.weights, "critic": zeros})

    def released(self, number: int) -> Floats:
        """A round's release times its fixed denominator, over the clipping norm, float64 [P]."""
        aggregate = self._step.gather(number, self.asked)
        return self._step.release(aggregate, number) * self._scale
