"""Canary users: made-up people whose update is a random direction, far longer than the clip.

Their updates leave the task's own class as those of real users do: it computes them from made-up
records, and the canary's values are put in the place of its own. From there on clip, sum, checks,
noise and denominator are those of a run. Nothing else is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.protocol import ClientTask, ClientTaskFactory
from fedlens.client.update.clipping import Updates, rows_of_updates
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.simulations.audits.made_up import (
    MadeUpUsers,
    dealt_out,
    made_up_images,
    made_up_labels,
    owner_of,
)
from fedlens.simulations.audits.stage import SHAPE, AuditedTask, AuditStage, Floats

OVERLONG = 10.0
"""Norm of a canary's update over the clipping norm."""
RECORDS = 2
"""Records of a canary, of two classes: an update in blocks then has more than one."""
MOST_VALUES = 2**26
"""Values (256 MiB) that all canaries' updates may have together."""
_LEAST_ROOM = 4
"""An update has at least this many coordinates a canary: directions must hardly overlap."""

Directions = NDArray[np.float32]
Coins = NDArray[np.bool_]


class CanaryTask(ClientTask):
    """The task's own class, whose users' values are replaced by those of canaries."""

    def __init__(self, real: ClientTask, raw: Tensor) -> None:
        """Around a task on a node.

        Args:
            real: what the kind's own class made for the request.
            raw: raw updates of all canaries by number, float32 [m, P].
        """
        self._real, self._raw = real, raw
        self.chunk = real.chunk

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """What the real class makes of the records, with the canaries' values in it."""
        return with_values(
            self._real.updates(cohort, seeds), [owner_of(data) for data in cohort], self._raw
        )


def with_values(found: Tensor | Updates, owners: Sequence[int], raw: Tensor) -> Tensor:
    """Updates as rows, with the values of ``raw`` in place of those that have an owner there.

    Args:
        found: updates, a row an owner.
        owners: whose, as rows of ``raw``; -1 keeps a row as it is.
        raw: float32 [m, P].
    """
    named, rows = torch.tensor(list(owners)), rows_of_updates(found)
    return torch.where((named >= 0)[:, None], raw[named].to(rows), rows)


def answering(kind: str, raw: Tensor) -> ClientTaskFactory:
    """What makes canary tasks around those of a kind."""
    real = CLIENT_TASKS[kind]

    def chosen(users: LocalUsers, request: TrainRequest) -> ClientTask:
        return CanaryTask(real(users, request), raw)

    return chosen


class Canaries:
    """Canary users of a task, and what each would add to a sum."""

    def __init__(
        self, audited: AuditedTask, count: int, source: np.random.Generator, *, norm: float
    ) -> None:
        """Make them up.

        Args:
            audited: the task.
            count: m at most; fewer where updates are too short or too long for as many.
            source: of directions, images and labels.
            norm: of a raw update, over the clipping norm.
        """
        size = audited.size
        self.count = max(1, min(count, size // _LEAST_ROOM, MOST_VALUES // size))
        self._audited, self._classes = audited, audited.classes
        self._images = made_up_images(self.count, RECORDS, SHAPE, source)
        self._labels = made_up_labels(self.count, RECORDS, self._classes, source)
        directions = source.standard_normal((self.count, size), dtype=np.float32)
        self.raw = torch.from_numpy(directions)
        length = norm * audited.schedule.event.clipping_norm
        self.raw *= length / self.raw.norm(dim=1, keepdim=True).clamp_min(1e-30)

    def _hosts(self, holds: Tensor, nodes: int) -> list[MadeUpUsers]:
        sensitive = self._audited.sensitive
        return dealt_out(self._images, self._labels, holds, nodes, self._classes, sensitive)

    def stage(self, included: Coins, audited: AuditedTask | None = None) -> AuditStage:
        """The canaries as users of the run's nodes.

        Args:
            included: bool [m], who holds records; the others are enrolled and hold nothing.
            audited: the task with another mechanism of the same clip, where it is to be another.
        """
        asked = audited or self._audited
        nodes = min(asked.nodes, self.count)
        kind = asked.schedule.task.settings.kind
        hosts = self._hosts(torch.from_numpy(included), nodes)
        return AuditStage(asked, hosts, answering(kind, self.raw))

    def nodes(self) -> NDArray[np.int64]:
        """Each canary's node, int64 [m]."""
        nodes = min(self._audited.nodes, self.count)
        bounds = np.linspace(0, self.count, nodes + 1).astype(int)
        return np.searchsorted(bounds, np.arange(self.count), side="right") - 1

    def units(self) -> Floats:
        """What each adds to a sum, over the clipping norm: directions of length 1, [m, P]."""
        rows: Floats = self.raw.double().numpy()
        units: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return units
