"""Where frequencies lie, on the server: a centre and a scale of each, from noised means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.client.messages import Vector
from fedlens.client.tasks.settings import FrequenciesSettings
from fedlens.privatizers.networks.spectral import LowFrequencies
from fedlens.privatizers.pair_moments import scaled_by
from fedlens.server.config.privatizer import SumsPrivatizer
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import ServerTask, TaskContext, TaskRequest


class FrequenciesTask(ServerTask):
    """A release is the noised mean of users' `looked_at`, [2 x size]; several are averaged.

    Raises:
        ShapeError: the frequencies that are asked for are not in such images.
    """

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._highest = cast(SumsPrivatizer, context.config.privatizer).highest_frequency
        self._features = LowFrequencies(context.shape, self._highest)
        self.size = 2 * self._features.size
        self._sum, self._releases = np.zeros(self.size), 0

    @property
    def ready(self) -> bool:
        """Whether there is a release."""
        return self._releases > 0

    def frame(self) -> dict[str, Vector]:
        """``centre`` and ``scale``, float32 [size] each; those of public numbers before a release.

        That is for audits: no run goes on without one.
        """
        if not self.ready:
            size = self._features.size
            scale = np.full(size, 1 / self._features.reach, np.float32)
            return {"centre": np.zeros(size, np.float32), "scale": scale}
        mean = torch.from_numpy(self._sum / self._releases)
        found = scaled_by(mean, self._features.reach)
        return {"centre": found[0].numpy(), "scale": found[1].numpy()}

    def request(self) -> TaskRequest:
        """How high the frequencies are."""
        return TaskRequest(FrequenciesSettings(highest_frequency=self._highest))

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Average a release in."""
        self._sum += release
        self._releases += 1
        return {}

    def state(self) -> Arrays:
        """Sum and number of the releases."""
        return {"sum": self._sum.copy(), "releases": np.array(self._releases)}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._sum = state["sum"].astype(np.float64)
        self._releases = int(state["releases"])
