"""The private annotator on a node: each user's mean gradient of a softmax on fixed features.

Federated averaging of the gradient at user level (McMahan et al., arXiv:1710.06963, algorithm 1,
with one local step on all of a user's records).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from client.clipping import clip_and_sum_products
from client.cohort_data import CohortData
from client.data import LocalData, LocalUsers
from client.feature_cache import FeatureCache, FeatureGroup, rows_of
from client.messages import TrainRequest
from client.record_sums import Portion, noised_sum
from client.tasks.settings import AnnotatorSettings
from models.annotators import Annotator
from models.vectors import load_vector


def load_annotator(users: LocalUsers, request: TrainRequest) -> Annotator:
    """The annotator as the request carries it: frame and present weight."""
    settings = AnnotatorSettings.model_validate(request.settings)
    annotator = Annotator(users.shape, users.classes, settings.components, settings.features)
    load_vector(annotator, request.weights["annotator"])
    return annotator


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


class AnnotatorLocalTask:
    """Updates are minus a user's mean gradient, [classes x (components + 1)], row by row."""

    chunk = 256

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        self._request = request
        self._annotator = load_annotator(users, request)
        self._features = FeatureCache(users, self._annotator)

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
            return [self._features.user(position) for position in cohort.positions]
        return [(rows_of(self._annotator, data.images), data.labels) for data in cohort]

    def record_update(self, node: int) -> Tensor:
        """The node's noised sum of minus the records' gradients, over the fixed denominator."""
        size = self._annotator.weight.numel()
        return noised_sum(self.portions(), size, node, self._request)

    def portions(self) -> Iterable[Portion]:
        """The users' records, as rows that are kept between rounds."""
        groups = self._features.groups()
        return (GradientPortion(group, self._annotator.weight) for group in groups)


@dataclass(frozen=True)
class GradientPortion:
    """Records as rows; each contributes minus its gradient with respect to the weight.

    That is the outer product of an error of norm at most √2 with a row of norm at most 1.
    """

    group: FeatureGroup
    weight: Tensor

    def __len__(self) -> int:
        """How many records."""
        return len(self.group.labels)

    @torch.no_grad()
    def clipped_sum(self, chosen: Tensor, bound: float) -> Tensor:
        """Minus the clipped gradients of the chosen records, float64 [classes x (k + 1)]."""
        rows, labels = self.group.rows[chosen], self.group.labels[chosen]
        return clip_and_sum_products(errors(rows, labels, self.weight), rows, bound)[0]
