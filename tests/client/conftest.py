"""Users over random images."""

from __future__ import annotations

import numpy as np
import pytest
from torch.nn.utils import parameters_to_vector

from client.data import ArrayUsers
from client.messages import TrainRequest
from models.critics import WganCritic
from models.generators import Generator
from models.vectors import to_vector
from server.config.tree import Config

SHAPE, CLASSES = (1, 28, 28), 10


@pytest.fixture
def users() -> ArrayUsers:
    """Seven users: five with ten records, one with a single one, one with none."""
    source = np.random.default_rng(3)
    sizes = [10, 10, 10, 10, 10, 1, 0]
    records = sum(sizes)
    return ArrayUsers(
        images=source.integers(0, 256, (records, *SHAPE), dtype=np.uint8),
        labels=source.integers(0, CLASSES, records),
        indices=np.arange(records),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        shape=SHAPE,
        classes=CLASSES,
        partition=0,
    )


@pytest.fixture
def make_request():
    """A request with settings over the defaults."""

    def make(
        *chosen: int,
        seed: int = 5,
        round_number: int = 1,
        family: str | None = None,
        denominator: float = 1.0,
        **changes: object,
    ) -> TrainRequest:
        settings = {k.replace("__", "."): v for k, v in changes.items()}
        config = Config().updated(settings)
        parts = ("critic.", "privacy.")
        flat = {k.split(".")[1]: v for k, v in config.flat().items() if k.startswith(parts)}
        flat |= {"generator_width": 48, "generator_latent": 64}
        flat |= {"components": config.annotator.components, "denominator": denominator}
        flat["features"] = config.annotator.features
        flat["family"] = family or config.critic.family
        critic = WganCritic(SHAPE, CLASSES)
        weights = {
            "critic": parameters_to_vector(critic.parameters()).detach().numpy(),
            "generator": to_vector(Generator(SHAPE, CLASSES)),
        }
        return TrainRequest(round_number, tuple(chosen), flat, weights, seed)

    return make
