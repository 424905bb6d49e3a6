"""A data card on a node: each user's histograms, one vector of bounded norm.

Every user is computed on the same number of records, absent ones among them, so that neither time
nor memory tells what anybody holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.settings import CardSettings
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.records import alone
from fedlens.models import devices
from fedlens.models.cards.statistics import card_layout
from fedlens.models.cards.vectors import card_vector


class CardLocalTask(ClientTask):
    """Updates are users' vectors of `fedlens.models.cards.vectors`."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        CardSettings.model_validate(request.settings)
        self._users, self._records = users, request.records_per_user
        self._layout = card_layout(users.shape, users.classes)
        self._device = devices.best_device()

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's vector, float32 [users, P]; zeros of one without records."""
        # user by user: none rounds another's numbers
        return torch.stack([self._vector(data) for data in cohort])

    def _vector(self, data: LocalData) -> Tensor:
        held = alone(data, self._records, self._users)
        images, labels, present = (
            part[0].to(self._device) for part in (held.images, held.labels, held.present)
        )
        return card_vector(images, labels, present, self._layout)
