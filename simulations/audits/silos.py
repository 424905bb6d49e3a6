"""Record mode's noise, as the nodes add it: silos without a record through the real local steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Context
from torch.nn.utils import parameters_to_vector

from client.app import build_client_app
from client.data import LocalData, LocalUsers
from client.records import Vector
from models.critics import WganCritic
from models.generators import Generator
from models.vectors import to_vector
from server.config import Config
from server.enrolment import enrol
from server.private_step import PrivateStep
from server.schedule import part_of
from simulations.audits.canaries import Floats
from simulations.audits.probes import SILENT_ROUNDS, Observer
from simulations.audits.schedule import Schedule
from simulations.transports.inprocess import InProcessGrid

SHAPE, CLASSES = (1, 28, 28), 10
_NO_LIMIT = 1e30
LEAST_NOISE = 1e-6
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

    def user(self, position: int) -> LocalData:
        """The records, all alike."""
        glare = torch.linspace(-_GLARE, _GLARE, 28 * 28).view(1, *SHAPE)
        labels = torch.zeros(self.records, dtype=torch.int64)
        return LocalData(glare.repeat(self.records, 1, 1, 1), labels)


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
    critic, generator = _weights(config)
    zeros = np.zeros_like(critic)
    found = []
    for life in range(2):
        step = _step(config, Silo(0), len(zeros))
        for number in range(1, rounds + 1):
            aggregate = step.gather(number, {"critic": zeros, "generator": generator})
            found.append(step.release(aggregate, number) / deviation)
            if observer is not None:
                observer("noise", life * rounds + number, 2 * rounds)
    return np.stack(found)


def silo_clip_probe(schedule: Schedule) -> float:
    """One glaring record, drawn for sure, next to no noise: the norm of what arrives over C."""
    quiet = {"privacy.sampling_rate": 1.0, "privacy.noise_multiplier": LEAST_NOISE}
    config = _stage_config(schedule.config).updated(quiet)
    critic, generator = _weights(config)
    step = _step(config, Silo(1), len(critic))
    release = step.release(step.gather(1, {"critic": critic, "generator": generator}), 1)
    return float(np.linalg.norm(release)) / config.privacy.clipping_norm


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


def _weights(config: Config) -> tuple[Vector, Vector]:
    """A fresh critic and a fresh generator, flat."""
    critic = WganCritic(SHAPE, CLASSES, config.critic.width, config.critic.hidden)
    made = Generator(SHAPE, CLASSES, config.generator.width, config.generator.latent)
    flat = parameters_to_vector(critic.parameters()).detach().numpy().copy()
    return flat, to_vector(made)


def _step(config: Config, silo: Silo, size: int) -> PrivateStep:
    def open_users(context: Context) -> LocalUsers:
        return silo

    grid = InProcessGrid(build_client_app(open_users), 1, config.flat())
    part = part_of(config, 1)
    return PrivateStep(config, part, grid, enrol(grid, config), size, float("inf"))
