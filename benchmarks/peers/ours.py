"""A node's round of fedlens: users looked up, local steps, clip and sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch.nn.utils import parameters_to_vector

from benchmarks.peers.work import (
    BATCH,
    CLIP,
    GENERATOR_WIDTH,
    LATENT,
    LIMIT,
    NOISE,
    RATE,
    RECORDS,
    STEPS,
    Size,
    generator,
    people,
)
from fedlens.client.messages import Mechanism, TrainRequest
from fedlens.client.tasks.settings import EngineName, ProductPrecision, WganSettings
from fedlens.client.train import train
from fedlens.models.weights import to_vector

ENGINES: dict[str, tuple[EngineName, ProductPrecision]] = {
    "fedlens, loop": ("loop", "float32"),
    "fedlens, vmap": ("vmap", "float32"),
    "fedlens, columns": ("columns", "float32"),
    "fedlens, columns in bfloat16": ("columns", "bfloat16"),
}


def our_round(name: str, size: Size, cohort: int, population: int = 1000) -> Callable[[], object]:
    """What a node does in a round in which ``cohort`` of ``population`` users are drawn."""
    engine, precision = ENGINES[name]
    settings = WganSettings(
        loss="wasserstein",
        width=size.width,
        hidden=size.hidden,
        local_steps=STEPS,
        local_batch=BATCH,
        local_rate=RATE,
        weight_limit=LIMIT,
        generator_width=GENERATOR_WIDTH,
        generator_latent=LATENT,
        engine=engine,
        precision=precision,
    )
    weights = parameters_to_vector(size.critic().parameters()).detach().numpy()
    users = people(population)
    drawn = np.random.default_rng(cohort).choice(population, cohort, replace=False)
    request = TrainRequest(
        round=1,
        users=tuple(sorted(int(user) for user in drawn)),
        kind="wgan",
        mechanism=Mechanism(
            unit="user",
            sampling_rate=cohort / population,
            noise_multiplier=NOISE,
            clipping_norm=CLIP,
            denominator=float(cohort),
            steps=1,
            fixed_seed=-1,
        ),
        settings=settings.model_dump(),
        weights={"critic": weights, "generator": to_vector(generator())},
        seed=1,
        enrolled=population,
        key=b"a benchmark",
        records_per_user=RECORDS,
    )
    return lambda: train(users, request)
