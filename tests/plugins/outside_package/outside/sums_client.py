"""Both tasks on a node: what each user adds to the sums that a filter is made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError
from fedlens.client.users.records import padded
from fedlens.privatizers.networks.spectral import LowFrequencies
from fedlens.privatizers.pair_moments import contribution, looked_at
from outside.sums_settings import PairsSettings, SpreadSettings


class SpreadLocalTask(ClientTask):
    """A user's mean frequencies, and their mean squares."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._users, self._records = users, request.records_per_user
        highest = SpreadSettings.model_validate(request.settings).highest
        self._features = LowFrequencies(users.shape, highest)

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """A row a user."""
        held = padded(cohort, self._records, self._users)
        scaled = [self._features.raw(images) / self._features.reach for images in held.images]
        return torch.stack(
            [looked_at(one, weights) for one, weights in zip(scaled, held.shares, strict=True)]
        )


class PairsLocalTask(ClientTask):
    """Sums of a user's features and their products, by pair of class and attribute."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = PairsSettings.model_validate(request.settings)
        name, self._values = users.sensitive_attribute, users.sensitive_classes
        if name != settings.hidden:
            raise NodeDataError(f"the run hides {settings.hidden!r}, this node has {name!r}")
        self._users, self._records = users, request.records_per_user
        self._features = LowFrequencies(users.shape, settings.highest)
        self._features.centre.copy_(torch.from_numpy(request.weights["centre"].copy()))
        self._features.scale.copy_(torch.from_numpy(request.weights["scale"].copy()))

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """A row a user; zeros of one who has no record, or none whose attribute is known."""
        held = padded(cohort, self._records, self._users)
        known = torch.tensor([float(data.sensitive is not None) for data in cohort])
        pairs, there = held.labels * self._values + held.sensitive, held.present * known[:, None]
        count = self._users.classes * self._values
        return torch.stack(
            [
                contribution(self._features(images), own, present, count).view(-1)
                for images, own, present in zip(held.images, pairs, there, strict=True)
            ]
        )
