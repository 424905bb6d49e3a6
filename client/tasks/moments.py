"""What images' features are like by pair of class and attribute: sums of them and their products.

The second of two sums that a filter is fitted on (`fedlens.privatizers.pair_moments`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest, Vector
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.settings import MomentsSettings
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError
from fedlens.client.users.records import padded
from fedlens.models import devices
from fedlens.privatizers.networks.spectral import LowFrequencies
from fedlens.privatizers.pair_moments import contribution, width_of

MOST_VALUES = 2**22
"""Numbers that a sum may have (32 MiB as it travels): more is no request for moments."""


class MomentsLocalTask(ClientTask):
    """Updates are the contributions of `fedlens.privatizers.pair_moments`, a block for each pair.

    The blocks are flattened. A record's pair is (class x values + value).

    Raises:
        NodeDataError: the users do not hold the attribute that is to be hidden, the request lacks
            centre or scale, or it asks for more than `MOST_VALUES` numbers.
        ShapeError: the frequencies that are asked for are not in such images.
    """

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = MomentsSettings.model_validate(request.settings)
        name, values = users.sensitive_attribute, users.sensitive_classes
        if name != settings.sensitive_attribute or values < 2:
            wanted = settings.sensitive_attribute
            raise NodeDataError(f"the run hides {wanted!r}, this node has {name!r}")
        self._users, self._records, self._values = users, request.records_per_user, values
        self._features = LowFrequencies(users.shape, settings.highest_frequency)
        self._pairs = users.classes * values
        asked = self._pairs * width_of(self._features.size)
        if asked > MOST_VALUES:
            raise NodeDataError(f"a sum of {asked} numbers is asked for: {MOST_VALUES} at most")
        self._features.centre.copy_(self._told(request, "centre"))
        self._features.scale.copy_(self._told(request, "scale"))
        self._device = devices.best_device()
        self._features.to(self._device)

    def _told(self, request: TrainRequest, name: str) -> Tensor:
        """A number for each feature that came with the request."""
        found: Vector | None = request.weights.get(name)
        if found is None or found.shape != (self._features.size,) or not np.isfinite(found).all():
            raise NodeDataError(f"the request lacks a finite {name} of {self._features.size}")
        return torch.from_numpy(found.copy())

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; zeros of one without records, or without sensitive values."""
        held = padded(cohort, self._records, self._users)
        known = torch.tensor([float(data.sensitive is not None) for data in cohort])
        pairs, present, images = (
            part.to(self._device)
            for part in (
                held.labels * self._values + held.sensitive,
                held.present * known[:, None],
                held.images,
            )
        )
        # user by user, in one shape: no user rounds another's numbers
        return torch.stack(
            [
                contribution(self._features(shown), own, there, self._pairs).view(-1)
                for shown, own, there in zip(images, pairs, present, strict=True)
            ]
        )
