"""Where images' frequencies lie: each user's means and squares, to centre and scale features by.

The first of two sums that a filter is fitted on (`fedlens.privatizers.pair_moments`). It asks for
no label.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.settings import FrequenciesSettings
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.records import padded
from fedlens.models import devices
from fedlens.privatizers.networks.spectral import LowFrequencies
from fedlens.privatizers.pair_moments import looked_at


class FrequenciesLocalTask(ClientTask):
    """Updates are a user's mean frequencies and weighted mean squares, [2 x size].

    Raises:
        ShapeError: the frequencies that are asked for are not in such images.
    """

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = FrequenciesSettings.model_validate(request.settings)
        self._users, self._records = users, request.records_per_user
        self._device = devices.best_device()
        features = LowFrequencies(users.shape, settings.highest_frequency)
        self._features = features.to(self._device)

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update, float32 [users, 2 x size]; zeros of a user without records."""
        held = padded(cohort, self._records, self._users)
        # user by user, in one shape: no user rounds another's numbers
        return torch.stack(
            [
                looked_at(self._features.raw(images) / self._features.reach, shares)
                for images, shares in zip(
                    held.images.to(self._device), held.shares.to(self._device), strict=True
                )
            ]
        )
