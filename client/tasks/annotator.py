"""The private annotator on a node: each user's mean gradient of a softmax on fixed features.

Federated averaging of the gradient at user level (McMahan et al., arXiv:1710.06963, algorithm 1,
with one local step on all of a user's records).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.feature_cache import FeatureCache, UserRows, rows_of
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.tasks.settings import AnnotatorSettings
from fedlens.client.update.clipping import Layered
from fedlens.client.update.record_mode import DrawnRecords
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.records import CohortData, padded
from fedlens.models import devices
from fedlens.models.annotators import Annotator
from fedlens.models.weights import load_vector


def load_annotator(users: LocalUsers, request: TrainRequest) -> Annotator:
    """The annotator as the request carries it, frame and present weight, on the node's device."""
    settings = AnnotatorSettings.model_validate(request.settings)
    annotator = Annotator(users.shape, users.classes, settings.components, settings.features)
    load_vector(annotator, request.weights["annotator"])
    return annotator.to(devices.best_device())


def errors(rows: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Wanted minus given probabilities, float32 [n, classes].

    A record's do not depend, to the last bit, on which records it is computed with. The outer
    product of a record's with its row is minus the gradient of its cross-entropy with
    respect to the weight.

    Args:
        rows: float32 [n, components + 1].
        labels: int64 [n] in [0, classes).
        weight: float32 [classes, components + 1].
    """
    # not one matrix product: its float32 rounding varies with a row's place among the others
    logits = torch.stack([(rows * one).sum(1) for one in weight], 1)
    return F.one_hot(labels, len(weight)).float() - torch.softmax(logits, 1)


class AnnotatorLocalTask(ClientTask):
    """Updates are minus a user's mean gradient, [classes x (components + 1)], row by row."""

    chunk = 64

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        by_user = request.mechanism.unit == "user"
        self._users, self._records = users, request.records_per_user if by_user else 0
        self._annotator = load_annotator(users, request)
        self._features = FeatureCache(users, self._annotator, self._records)

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        weight, held = self._annotator.weight, self._rows(cohort)
        found = weight.new_zeros(len(held), *weight.shape)
        for row, user in zip(found, held, strict=True):
            rows, labels, shares = (
                part.to(weight.device) for part in (user.rows, user.labels, user.shares)
            )
            # by itself: products of all users at once round a user's numbers by its place
            wrong = errors(rows, labels, weight) * shares[:, None]
            row.copy_(wrong.mT @ rows)
        return found.view(len(held), -1)

    def _rows(self, cohort: Sequence[LocalData]) -> list[UserRows]:
        if isinstance(cohort, CohortData):
            return self._features.cohort(cohort)
        held = padded(cohort, self._records, self._users)
        rows = [rows_of(self._annotator, images) for images in held.images]
        return [UserRows(*user) for user in zip(rows, held.labels, held.shares, strict=True)]

    @torch.no_grad()
    def record_rows(self, drawn: DrawnRecords) -> Layered:
        """Minus each record's gradient with respect to the weight.

        That is the outer product of an error of norm at most √2 with a row of norm at most 1.
        """
        weight = self._annotator.weight
        rows, labels = (part.to(weight.device) for part in self._features.drawn(drawn))
        return Layered(((errors(rows, labels, weight)[:, :, None], rows[:, None, :]),))
