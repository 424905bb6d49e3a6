"""The private annotator on a node: each user's mean gradient of a softmax on fixed features.

Federated averaging of the gradient at user level (McMahan et al., arXiv:1710.06963, algorithm 1,
with one local step on all of a user's records).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from client.cohort_data import CohortData
from client.data import LocalData, LocalUsers
from client.feature_cache import FeatureCache, rows_of
from client.messages import TrainRequest
from models.annotators import Annotator
from models.vectors import load_vector


def load_annotator(users: LocalUsers, request: TrainRequest) -> Annotator:
    """The annotator as the request carries it: frame and present weight."""
    components = int(request.settings["components"])
    features = str(request.settings["features"])
    annotator = Annotator(users.shape, users.classes, components, features)
    load_vector(annotator, request.weights["annotator"])
    return annotator


def errors(rows: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Wanted minus given probabilities, float32 [n, classes].

    The outer product of a record's with its row is minus the gradient of its cross-entropy with
    respect to the weight.

    Args:
        rows: float32 [n, components + 1].
        labels: int64 [n] in [0, classes).
        weight: float32 [classes, components + 1].
    """
    return F.one_hot(labels, len(weight)).float() - torch.softmax(rows @ weight.mT, 1)


class AnnotatorLocalCritic:
    """Updates are minus a user's mean gradient, [classes x (components + 1)], row by row."""

    chunk = 256

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._annotator = load_annotator(users, request)
        self._features_cache = FeatureCache(users, self._annotator)

    @torch.no_grad()
    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        weight = self._annotator.weight
        held = self._rows(cohort)
        counts = torch.tensor([len(labels) for _, labels in held])
        rows, labels = (torch.cat(part) for part in zip(*held, strict=True))
        wrong = errors(rows, labels, weight)
        starts = torch.cumsum(counts, 0) - counts
        found = torch.zeros(len(held), *weight.shape)
        for count in torch.unique(counts).tolist():  # users of as many records in one product
            if count:
                alike = (counts == count).nonzero()[:, 0]
                picked = starts[alike, None] + torch.arange(count)
                found[alike] = torch.bmm(wrong[picked].mT, rows[picked]) / count
        return found.view(len(held), -1)

    def _rows(self, cohort: Sequence[LocalData]) -> list[tuple[Tensor, Tensor]]:
        if isinstance(cohort, CohortData):
            return [self._features_cache.user(position) for position in cohort.positions]
        return [(rows_of(self._annotator, data.images), data.labels) for data in cohort]
