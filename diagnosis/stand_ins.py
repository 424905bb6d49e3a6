"""A run's releases before there is a run: its own tasks, with public records in users' place.

What later tasks ask for builds on samples of the generator. Here reference images stand in for
them, and the reference's own releases, with the planned noise, for users'. No one is asked.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.messages import TrainRequest, Vector
from fedlens.diagnosis.held import AT_ONCE, Held, slices
from fedlens.diagnosis.readers import READERS, TaskReader
from fedlens.diagnosis.reference import Reference
from fedlens.server.config.mechanism import mechanism, release_deviation
from fedlens.server.config.tasks import TaskConfig
from fedlens.server.config.tree import Config
from fedlens.server.round.releases import ArchivedRelease
from fedlens.server.tasks import server_task
from fedlens.server.tasks.protocol import ServerTask, TaskContext, TaskRequest

_SEED = 16


def planned(config: Config, reference: Reference) -> list[ArchivedRelease]:
    """Every round of every task that can be read, as it would be kept.

    Args:
        config: of the run; ``data.records_per_user`` is what a user holds.
        reference: what stands in for users and for samples.
    """
    earlier: dict[str, ServerTask] = {}
    source = np.random.default_rng(_SEED)
    found: list[ArchivedRelease] = []
    for name, task in config.planned.items():
        if task.kind not in READERS:
            continue
        context = TaskContext(
            config,
            name,
            reference.shape,
            reference.classes,
            reference.classes,
            0,
            lambda: np.zeros(0, np.float32),
            dict(earlier),
        )
        made = server_task(context)
        found += _rounds(config, name, made, reference, source)
        earlier[name] = made
    return found


def _rounds(
    config: Config, name: str, made: ServerTask, reference: Reference, source: np.random.Generator
) -> list[ArchivedRelease]:
    task, classes = config.planned[name], reference.classes
    places = reference.dealt(config.data.records_per_user)
    labels = reference.labels[places]
    held = Held(places, labels, torch.ones_like(labels, dtype=torch.bool))
    deviation, features, found = release_deviation(config, task), None, []
    for number in range(1, task.rounds + 1):
        made.prepare(lambda: (reference.images, reference.labels))
        request = _request(config, task, made.request(), number)
        reader = READERS[task.kind]([request], reference.shape, classes)
        if features is None:
            features = reader.features(reference.images)
        release = _mean(reader.rows(features), reader, held)
        release += source.normal(0, deviation, release.shape)
        made.apply_release(release)
        found.append(ArchivedRelease(name, release, deviation, request, reference.shape, classes))
    return found


def _mean(rows: Tensor, reader: TaskReader, held: Held) -> NDArray[np.float64]:
    groups = slices(len(held), AT_ONCE)
    parts = [reader.sums(rows, held.some(users)).sum(0) for users in groups]
    found: NDArray[np.float64] = torch.stack(parts).sum(0).double().numpy() / len(held)
    return found


def _request(config: Config, task: TaskConfig, asked: TaskRequest, number: int) -> TrainRequest:
    weights: dict[str, Vector] = {name: vector.copy() for name, vector in asked.weights.items()}
    return TrainRequest(
        round=number,
        users=(),
        enrolled=0,
        kind=task.kind,
        mechanism=mechanism(config, task),
        settings=asked.settings.model_dump(),
        weights=weights,
        seed=0,
        key=b"",
        records_per_user=config.data.records_per_user,
    )
