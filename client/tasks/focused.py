"""The focused critic on a node: how far a user's records are from the generator's, class by class.

It is the frozen-feature critic once more, linear in the same random features, but only along the
directions that synthetic images span and relative to their class means: see `fedlens.models.focus`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.frozen import FrozenLocalTask
from fedlens.client.users.protocol import LocalUsers
from fedlens.models.focus import focus_from


class FocusedLocalTask(FrozenLocalTask):
    """Updates of shape [classes x components]: class sums of distances over the records' number.

    Each row is a user's, flattened class by class; a user without records contributes zeros.
    """

    def _prepare(self, users: LocalUsers, request: TrainRequest) -> None:
        super()._prepare(users, request)
        vector = request.weights["critic"]
        focus = focus_from(vector, self._features.dim - 1, users.classes)
        self._focus = focus.on(self._device)
        self.dim = self._focus.centers.shape[1]

    @torch.no_grad()
    def rows(self, images: Tensor, labels: Tensor) -> Tensor:
        """What each record adds to its class, float32 [n, components]."""
        rows = super().rows(images, labels)[:, :-1]
        return self._focus.apart(rows, labels.to(rows.device))
