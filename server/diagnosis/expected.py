"""What nodes would release of reference users: the nodes' own code, clip included.

A release is the mean of users' clipped updates, plus noise of known size. If a share p of users has
a fault, its expectation is (1 - p) x the mean of sound users + p x the mean of faulty ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.clipping import Blocks, clip_and_sum
from client.cohort_data import NO_USER, CohortData
from client.messages import TrainRequest
from client.tasks import CLIENT_TASKS
from client.tasks.protocol import ClientTask
from server.diagnosis.hypotheses import Hypothesis
from server.diagnosis.reference import ReferenceUsers
from server.kept_releases import KeptRelease

Matrix = NDArray[np.float32]
RENAMED_ALONE = ("frozen",)
"""Kinds of task whose update is a block a class that goes with the class's name, and no more:
where classes change names, blocks change places."""


@dataclass(frozen=True)
class Means:
    """Mean updates of two halves of the reference users: their errors are independent."""

    one: Matrix
    """float32 [P], over the noise's standard deviation."""
    other: Matrix

    def less(self, origin: Means) -> Means:
        """Half by half, what is more than in another."""
        return Means(self.one - origin.one, self.other - origin.other)

    @property
    def middle(self) -> Matrix:
        """Mean over all users."""
        return ((self.one + self.other) / 2).astype(np.float32)


@torch.no_grad()
def updates(users: ReferenceUsers, release: KeptRelease, records: int) -> Matrix:
    """Each user's clipped update over the release's noise, float32 [users, P]."""
    request = replace(release.request, records_per_user=records)
    task = CLIENT_TASKS[request.kind](users, request)
    rows = [
        part
        for start in range(0, len(users), task.chunk)
        for part in _chunk(task, users, request, start)
    ]
    return np.stack(rows).astype(np.float32) / np.float32(release.deviation)


def _chunk(
    task: ClientTask, users: ReferenceUsers, request: TrainRequest, start: int
) -> list[Matrix]:
    present = min(task.chunk, len(users) - start)
    positions = (*range(start, start + present), *(NO_USER,) * (task.chunk - present))
    found = task.updates(CohortData(users, positions), [0] * task.chunk)
    rows: Tensor = found.dense() if isinstance(found, Blocks) else found
    bound = request.mechanism.clipping_norm
    return [clip_and_sum(rows[i : i + 1], bound)[0].float().numpy() for i in range(present)]


def all_updates(users: ReferenceUsers, releases: Sequence[KeptRelease], records: int) -> Matrix:
    """Users' clipped updates in all releases side by side, float32 [users, sum of P]."""
    return np.concatenate([updates(users, release, records) for release in releases], axis=1)


def halves(rows: Matrix) -> Means:
    """Means over the even and over the odd users."""
    return Means(rows[::2].mean(0), rows[1::2].mean(0))


def expected(
    users: ReferenceUsers,
    hypothesis: Hypothesis,
    releases: Sequence[KeptRelease],
    records: int,
    sound: Matrix,
) -> Means:
    """The means where all users have a fault.

    Args:
        users: sound reference users.
        hypothesis: the fault.
        releases: whose sums are asked for.
        records: what a user contributes at most.
        sound: `all_updates` of the users.
    """
    names = hypothesis.renamed(users.classes)
    if names is not None and all(one.request.kind in RENAMED_ALONE for one in releases):
        blocks = sound.reshape(len(sound), len(releases), users.classes, -1)
        found = np.empty_like(blocks)
        found[:, :, names.numpy()] = blocks
        return halves(found.reshape(sound.shape))
    return halves(all_updates(users.under(hypothesis), releases, records))
