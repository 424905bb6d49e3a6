"""Critic families as the server sees them: one Protocol, one registry line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.shapes import ImageShape
from server.config.tree import Config
from server.tasks.frozen import FrozenCritic
from server.tasks.wgan import WganServerCritic

State = dict[str, NDArray[np.generic]]


class ServerCritic(Protocol):
    """What a family does on the server, always after the noise."""

    size: int
    """P: length of an update."""
    largest_change: float
    """L2 norm that no sound reply of a node in record mode exceeds."""

    def weights(self) -> NDArray[np.float32] | None:
        """The critic that clients start from (and train against fakes), or None for neither."""

    def apply_release(self, release: NDArray[np.float64]) -> None:
        """Take in one noised mean update."""

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """The generator's loss on a batch of its images."""

    def state(self) -> State:
        """All that `restore` needs to go on bit for bit."""

    def restore(self, state: State) -> None:
        """Take up a state."""


FAMILIES: dict[str, Callable[[Config, ImageShape, int], ServerCritic]] = {
    "frozen": FrozenCritic,
    "wgan": WganServerCritic,
}
