"""Record mode's noise, as the nodes add it: silos without a record through the real local steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Context

from client.app import build_client_app
from client.data import LocalData, LocalUsers
from models.critics import WganCritic
from models.generators import Generator
from models.vectors import to_vector
from server.config import Config
from server.enrolment import enrol
from server.private_step import PrivateStep
from simulations.audits.canaries import Floats
from simulations.audits.probes import SILENT_ROUNDS, Observer
from simulations.audits.schedule import Schedule
from simulations.transports.inprocess import InProcessGrid

SHAPE, CLASSES = (1, 28, 28), 10
_NO_LIMIT = 1e30
WHY_NO_CANARIES = (
    "record mode has no canaries: a record's gradient is what the critic makes of an image, so its "
    "direction cannot be chosen; the noise of its nodes is audited instead"
)


@dataclass(frozen=True)
class EmptySilo:
    """A node whose only user holds nothing."""

    partition: int = 0
    shape: tuple[int, int, int] = SHAPE
    classes: int = CLASSES

    def __len__(self) -> int:
        """One user."""
        return 1

    def user(self, position: int) -> LocalData:
        """No record."""
        return LocalData(torch.zeros(0, *SHAPE), torch.zeros(0, dtype=torch.int64))


def silent_silos(
    schedule: Schedule, *, rounds: int = SILENT_ROUNDS, observer: Observer | None = None
) -> Floats:
    """What a silo without records replies: the noise of its local steps, over zC.

    One local step from a critic of zeros, at learning rate and denominator 1 and without limits on
    the weights, so that the change of the critic is the step's noise, rounded to float32. Two lives
    of the mechanism, as before and after a restart.

    Returns:
        float64 [2 · rounds, P].
    """
    config = _stage_config(schedule.config)
    privacy = config.privacy
    deviation = privacy.noise_multiplier * privacy.clipping_norm
    zeros, generator = _weights(config)
    found = []
    for life in range(2):
        step = _step(config, len(zeros))
        for number in range(1, rounds + 1):
            aggregate = step.gather(number, {"critic": zeros, "generator": generator})
            found.append(step.release(aggregate, number) / deviation)
            if observer is not None:
                observer("noise", life * rounds + number, 2 * rounds)
    return np.stack(found)


def _stage_config(config: Config) -> Config:
    return config.updated(
        {
            "data.users": 1,
            "data.nodes": 1,
            "privacy.fixed_seed": -1,
            "privacy.epsilon_budget": 0.0,
            "critic.local_steps": 1,
            "critic.local_batch": 1,
            "critic.local_rate": 1.0,
            "critic.weight_limit": _NO_LIMIT,
        }
    )


def _weights(config: Config) -> tuple[np.ndarray, np.ndarray]:
    critic = WganCritic(SHAPE, CLASSES, config.critic.width, config.critic.hidden)
    size = sum(p.numel() for p in critic.parameters())
    made = Generator(SHAPE, CLASSES, config.generator.width, config.generator.latent)
    return np.zeros(size, dtype=np.float32), to_vector(made)


def _step(config: Config, size: int) -> PrivateStep:
    def open_users(context: Context) -> LocalUsers:
        return EmptySilo()

    grid = InProcessGrid(build_client_app(open_users), 1, config.flat())
    return PrivateStep(config, grid, enrol(grid, config), size, float("inf"))
