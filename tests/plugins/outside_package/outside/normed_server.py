"""The critic on the server: it moves by the mean of what nodes' steps changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedlens.client.messages import Vector
from fedlens.models.limits import clamp_weights, limits_norm, weight_limits
from fedlens.server.run.arrays import Arrays
from fedlens.server.tasks.protocol import CriticTask, TaskContext, TaskRequest, settings_of
from outside.normed_client import LIMIT, NormedCritic
from outside.normed_settings import NormedSettings


class NormedTask(CriticTask):
    """Keeps the critic's weights."""

    def __init__(self, context: TaskContext) -> None:
        self._settings = context.settings
        torch.manual_seed(context.config.seed)
        self._critic = NormedCritic(context.shape, context.classes)
        limits = weight_limits(self._critic, LIMIT)
        clamp_weights(self._critic, limits)
        self._critic.requires_grad_(False)
        self.size = sum(p.numel() for p in self._critic.parameters())
        self.largest_reply = 2 * limits_norm(self._critic, limits)

    def _weights(self) -> Vector:
        return parameters_to_vector(self._critic.parameters()).numpy().copy()

    def _take(self, weights: NDArray[np.float64]) -> None:
        vector = torch.from_numpy(weights.astype(np.float32))
        vector_to_parameters(vector, self._critic.parameters())

    def request(self) -> TaskRequest:
        """The critic as it is."""
        return TaskRequest(settings_of(self._settings, NormedSettings), {"critic": self._weights()})

    def apply_release(self, release: NDArray[np.float64]) -> Mapping[str, float]:
        """Move by it."""
        self._take(self._weights() + release)
        return {"moved": float(np.linalg.norm(release))}

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Minus the mean score."""
        score: Tensor = -self._critic(images, labels).mean()
        return score

    def state(self) -> Arrays:
        """The weights."""
        return {"weights": self._weights()}

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        self._take(state["weights"])
