"""Users over random images."""

from __future__ import annotations

import numpy as np
import pytest
from torch.nn.utils import parameters_to_vector

from fedlens.client.messages import Mechanism, TrainRequest
from fedlens.client.tasks.settings import AnnotatorSettings, FrozenSettings, WganSettings
from fedlens.client.users.protocol import ArrayUsers
from fedlens.models.critics import WganCritic
from fedlens.models.generators import Generator
from fedlens.models.weights import to_vector
from fedlens.server.config.tasks import TASK_KINDS
from fedlens.server.tasks.protocol import settings_of

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


TYPED = {
    "frozen": FrozenSettings,
    "focused": FrozenSettings,
    "annotator": AnnotatorSettings,
    "wgan": WganSettings,
}
BESIDE = {
    "focused": {"feature_seed": 123},
    "wgan": {
        "generator_width": 48,
        "generator_latent": 64,
        "engine": "vmap",
        "precision": "float32",
    },
}
"""What the server adds to a task's own settings."""


@pytest.fixture
def make_request():
    """A request for a kind of task, with settings of it over its defaults."""

    def make(
        *chosen: int,
        kind: str = "frozen",
        seed: int = 5,
        round_number: int = 1,
        unit: str = "user",
        denominator: float = 1.0,
        fixed_seed: int = -1,
        enrolled: int = 7,
        key: bytes = b"a run's own key",
        records_per_user: int = 10,
        **changes: object,
    ) -> TrainRequest:
        task = TASK_KINDS[kind].config(**changes)
        named = {k: v for k, v in changes.items() if k in ("engine", "precision")}
        mechanism = Mechanism(
            unit=unit,
            sampling_rate=task.sampling_rate,
            noise_multiplier=task.noise_multiplier,
            clipping_norm=task.clipping_norm,
            denominator=denominator,
            steps=task.steps_on_nodes if unit == "record" else 1,
            fixed_seed=fixed_seed,
        )
        weights = {
            "critic": parameters_to_vector(WganCritic(SHAPE, CLASSES).parameters())
            .detach()
            .numpy(),
            "generator": to_vector(Generator(SHAPE, CLASSES)),
        }
        return TrainRequest(
            round=round_number,
            users=tuple(chosen),
            kind=kind,
            mechanism=mechanism,
            settings=settings_of(
                task, TYPED[kind], **{**BESIDE.get(kind, {}), **named}
            ).model_dump(),
            weights=weights,
            seed=seed,
            enrolled=enrolled,
            key=key,
            records_per_user=records_per_user,
        )

    return make
