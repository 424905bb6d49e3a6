"""A task on the server: the generator's coarse pictures shall be those that were released."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fedlens.server.config.mechanism import largest_sum
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import CriticTask, TaskContext, TaskRequest, settings_of
from outside.coarse_settings import CoarseSettings


class CoarseTask(CriticTask):
    """Averages its releases."""

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        side = self._settings.side
        self._form = (context.classes, context.shape[0], side, side)
        self.size = int(np.prod(self._form))
        self.largest_reply = largest_sum(context.config, self._settings, self.size)
        self._sum, self._releases = np.zeros(self.size), 0

    def request(self) -> TaskRequest:
        """The size of coarse pictures."""
        return TaskRequest(settings_of(self._settings, CoarseSettings))

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Add it up."""
        self._sum = self._sum + release
        self._releases += 1
        return {"coarse_norm": float(np.linalg.norm(release))}

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Mean squared distance of class means, each class as often as the others."""
        mean = self._sum * self._form[0] / max(1, self._releases)
        target = torch.from_numpy(mean.astype(np.float32)).view(self._form)
        coarse = adaptive_avg_pool2d(images, self._form[-1])
        return (coarse.view(self._form[0], -1, *self._form[1:]).mean(1) - target).square().mean()

    def state(self) -> Arrays:
        """Sum and number of releases."""
        return {"sum": self._sum, "releases": np.array(self._releases)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._sum, self._releases = state["sum"], int(state["releases"])
