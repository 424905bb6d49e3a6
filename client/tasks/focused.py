"""The focused critic on a node: how far a user's records are from the generator's, class by class.

It is the frozen-feature critic once more, linear in the same random features, but only along the
directions that synthetic images span and relative to their class means: see `models.focus`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from client.data import LocalUsers
from client.messages import TrainRequest
from client.tasks.frozen import FrozenLocalCritic, public_features
from models.features import PatchFeatures
from models.focus import Focus, focus_from


def load_focus(users: LocalUsers, request: TrainRequest) -> tuple[PatchFeatures, Focus]:
    """The public features and the focus that a request carries."""
    features = public_features(users.shape, int(request.settings["feature_seed"]))
    return features, focus_from(request.weights["critic"], features.dim - 1, users.classes)


class FocusedRows:
    """What each record adds to its class, before any clip."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._features, self._focus = load_focus(users, request)
        self.dim = self._focus.centers.shape[1]

    @torch.no_grad()
    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Rows float32 [n, components] of images [n, c, h, w] of classes int64 [n]."""
        return self._focus.apart(self._features(images)[:, :-1], labels)


class FocusedLocalCritic(FrozenLocalCritic):
    """Updates of shape [classes x components]: class sums of distances over the records' number.

    Each row is a user's, flattened class by class; a user without records contributes zeros.
    """

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        super().__init__(users, request)
        self._apart = FocusedRows(users, request)

    def rows(self, images: Tensor, labels: Tensor) -> Tensor:
        """What each record adds to its class, float32 [n, components]."""
        return self._apart(images, labels)
