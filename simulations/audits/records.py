"""Canary records: made-up records of nodes in record mode, and what each adds to a node's sum.

Nodes clip and noise by themselves there, so nothing is put in their way: the records go through
the task as real ones do. What one of them adds is measured by having a node hold it alone, next to
no noise, and each is longer than the clip, which is made small enough for that.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.accountant.events import LEAST_NOISE
from fedlens.simulations.audits.made_up import MadeUpUsers, made_up_images, made_up_labels
from fedlens.simulations.audits.stage import SHAPE, AuditedTask, AuditStage, Floats

_LEAST_APART = 0.05
"""How much of a contribution must be its own."""
SMALL_CLIP = 1e-2
"""Gradients of ordinary records are longer: then every record's contribution has norm C."""


class CanaryRecords:
    """Records of the nodes of a run in record mode."""

    alone: Floats
    """What each record adds to its node's sum, over the clipping norm, float64 [m, P]."""
    nodes: NDArray[np.int64]
    """Each record's node, int64 [m]."""

    def __init__(
        self, audited: AuditedTask, count: int, nodes: int, source: np.random.Generator
    ) -> None:
        """Make them up.

        Args:
            audited: the task; its clip is made small, and a single step is taken where nodes step.
            count: m, over all nodes; fewer where some cannot be told from others.
            nodes: how many nodes share them.
            source: of images and labels.
        """
        clip = min(audited.schedule.event.clipping_norm, SMALL_CLIP)
        self.audited = audited.stepping(1).with_mechanism(clipping_norm=clip)
        self.images = made_up_images(count, 1, SHAPE, source)[:, 0]
        self.labels = made_up_labels(count, 1, audited.classes, source)[:, 0]
        self._count = nodes
        alone = self._alone()
        apart = _told_apart(alone)
        self.images, self.labels, self.alone = self.images[apart], self.labels[apart], alone[apart]
        self.nodes = np.arange(len(apart)) % nodes

    def host(self, chosen: NDArray[np.bool_] | Tensor, node: int) -> MadeUpUsers:
        """One user with the chosen records, bool [m]."""
        picked = torch.as_tensor(chosen)
        one = torch.ones(1, dtype=torch.bool)
        images, labels = self.images[picked][None], self.labels[picked][None]
        return MadeUpUsers(images, labels, one, self.audited.classes, node)

    def stage(self, included: NDArray[np.bool_], audited: AuditedTask | None = None) -> AuditStage:
        """The included records on their nodes.

        Args:
            included: bool [m].
            audited: the task with another mechanism of the same clip, where it is to be another.
        """
        hosts = [self.host(included & (self.nodes == n), n) for n in range(self._count)]
        return AuditStage(audited or self.audited, hosts)

    def _alone(self) -> Floats:
        """What each record adds to its node's sum, over the clipping norm, float64 [m, P].

        By the public seeds of the task's first round.
        """
        number = self.audited.schedule.task.first
        quiet = self.audited.with_mechanism(sampling_rate=1.0, noise_multiplier=LEAST_NOISE)
        everybody = np.eye(len(self.labels), dtype=np.bool_)
        stage = AuditStage(quiet, [self.host(everybody[0], 0)])
        rows = []
        for one in everybody:
            stage.hosting(0, self.host(one, 0))
            stage.released(number)
            rows.append(stage.replies()[0])
        return np.stack(rows)

    def quiet(self) -> AuditedTask:
        """The task next to no noise, at its own sampling rate."""
        return self.audited.with_mechanism(noise_multiplier=LEAST_NOISE)


def _told_apart(rows: Floats) -> NDArray[np.int64]:
    """Which rows, each of length 1, are no combination of earlier ones, as ascending positions."""
    kept: list[int] = []
    basis = np.zeros((0, rows.shape[1]))
    for place, row in enumerate(rows):
        own = row - basis.T @ (basis @ row)
        length = float(np.linalg.norm(own))
        if length > _LEAST_APART:
            kept.append(place)
            basis = np.vstack([basis, own / length])
    return np.array(kept, dtype=np.int64)


def with_records(audited: AuditedTask, images: Tensor, labels: Tensor) -> MadeUpUsers:
    """One user who holds some records, on the first node."""
    one = torch.ones(1, dtype=torch.bool)
    return MadeUpUsers(images[None], labels[None], one, audited.classes, 0, audited.sensitive)


def silent_hosts(audited: AuditedTask, nodes: int) -> list[MadeUpUsers]:
    """Nodes with a user each who holds nothing."""
    none = torch.zeros(1, dtype=torch.bool)
    images, labels = torch.zeros(1, 1, *SHAPE), torch.zeros(1, 1, dtype=torch.int64)
    return [
        MadeUpUsers(images, labels, none, audited.classes, node, audited.sensitive)
        for node in range(nodes)
    ]
