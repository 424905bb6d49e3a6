"""Record mode of the frozen critic and of the annotator: one noised sum a round.

Both have a gradient that is known in closed form, so nothing is stepped on the node: each record
is drawn with probability q, its gradient clipped to C, all added up, N(0, (zC)^2) added once, and
divided by the number that was declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from client.clipping import Blocks, clip_and_sum, clip_and_sum_products
from client.cohort_data import batched_records
from client.data import LocalData, LocalUsers
from client.feature_cache import FeatureCache, FeatureGroup
from client.messages import TrainReply, TrainRequest
from client.silo import chosen_of, noised, sampling_source
from client.tasks.annotator import errors, load_annotator
from client.tasks.focused import FocusedRows
from client.tasks.frozen import public_features

AT_ONCE = 128
"""Feature rows of images that are made and clipped together."""


class Portion(Protocol):
    """Some of a silo's records."""

    def __len__(self) -> int:
        """How many."""

    def clipped_sum(self, chosen: Tensor, bound: float) -> Tensor:
        """What the records at positions ``chosen``, int64 [k], add up to, float64 [P].

        Each contributes at most ``bound`` in L2 norm, so that is the sum's sensitivity to adding
        or removing one record.
        """


class RecordSum(Protocol):
    """A family whose records contribute to one sum."""

    size: int
    """P: length of the sum."""

    def portions(self) -> Iterable[Portion]:
        """All sound records of the silo, some at a time, always in the same order."""


@dataclass(frozen=True)
class FrozenPortion:
    """Records as images; each contributes its row at its class."""

    data: LocalData
    rows: Callable[[Tensor, Tensor], Tensor]
    """Of images and their labels, float32 [n, dim]."""
    dim: int
    classes: int

    def __len__(self) -> int:
        """How many records."""
        return len(self.data.labels)

    @torch.no_grad()
    def clipped_sum(self, chosen: Tensor, bound: float) -> Tensor:
        """The clipped rows of the chosen records, added up by class, float64 [classes x dim]."""
        total = torch.zeros(self.classes * self.dim, dtype=torch.float64)
        for part in torch.split(chosen, AT_ONCE):
            labels = self.data.labels[part]
            rows = self.rows(self.data.images[part], labels)
            blocks = Blocks(rows, torch.arange(len(rows)), labels, len(rows), self.classes)
            total += clip_and_sum(blocks, bound)[0]
        return total


@dataclass(frozen=True)
class AnnotatorPortion:
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


class FrozenRecords:
    """The frozen critic's sum, [classes x dim], row by row."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        features = public_features(users.shape, int(request.settings["feature_seed"]))
        self._prepare(users, lambda images, labels: features(images), features.dim)

    def _prepare(
        self, users: LocalUsers, rows: Callable[[Tensor, Tensor], Tensor], dim: int
    ) -> None:
        self._users, self._rows, self._dim = users, rows, dim
        self.size = users.classes * dim

    def portions(self) -> Iterable[Portion]:
        """The users' records, as images."""
        for data, _ in batched_records(self._users, range(len(self._users))):
            yield FrozenPortion(data, self._rows, self._dim, self._users.classes)


class FocusedRecords(FrozenRecords):
    """The focused critic's sum, [classes x components], row by row."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        rows = FocusedRows(users, request)
        self._prepare(users, rows, rows.dim)


class AnnotatorRecords:
    """The annotator's sum, [classes x (components + 1)], row by row."""

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        annotator = load_annotator(users, request)
        self._weight = annotator.weight
        self._features_cache = FeatureCache(users, annotator)
        self.size = self._weight.numel()

    def portions(self) -> Iterable[Portion]:
        """The users' records, as rows that are kept between rounds."""
        return (AnnotatorPortion(group, self._weight) for group in self._features_cache.groups())


SUMS: dict[str, Callable[[LocalUsers, TrainRequest], RecordSum]] = {
    "annotator": AnnotatorRecords,
    "focused": FocusedRecords,
    "frozen": FrozenRecords,
}


def train_sum(family: RecordSum, node: int, request: TrainRequest) -> TrainReply:
    """The node's noised sum over ``settings["denominator"]``."""
    total = noised(clipped_sum(family, node, request), request, node, 0)
    # a fixed denominator: how many took part, and even the silo's size, are private
    mean = total / float(request.settings["denominator"])
    return TrainReply(mean.numpy(), np.zeros(0, dtype=np.int64))


def clipped_sum(family: RecordSum, node: int, request: TrainRequest) -> Tensor:
    """A round's sum before its noise, float64 [P]: private, of L2 sensitivity C."""
    bound = float(request.settings["clipping_norm"])
    total = torch.zeros(family.size, dtype=torch.float64)
    source = sampling_source(request, node, 0)
    for portion in family.portions():
        chosen = chosen_of(len(portion), request, source)
        if len(chosen):
            total += portion.clipped_sum(chosen, bound)
    return total
