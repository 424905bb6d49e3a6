"""How each kind of task turns records into what users release: the nodes' own rows, many at once.

A reader splits a task's update in two: rows that depend on images alone, which are expensive and
made once for a set of images, and the users' clipped sums of them, which are cheap. So a thousand
ways to deal records out, to name them or to leave some out cost no new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.annotator import errors
from fedlens.client.tasks.feature_cache import rows_of
from fedlens.client.tasks.frozen import public_features
from fedlens.client.tasks.settings import AnnotatorSettings, FrozenSettings
from fedlens.models.annotators import Annotator
from fedlens.models.focus import focus_from
from fedlens.models.shapes import ImageShape, one_hot
from fedlens.models.weights import load_vector

AT_ONCE = 64
"""Users whose sums are made together."""


@dataclass(frozen=True, eq=False)
class Held:
    """Which records users hold, in one shape: absent ones weigh nothing."""

    places: Tensor
    """Rows of the records, int64 [users, records]."""
    labels: Tensor
    """int64 [users, records]."""
    present: Tensor
    """bool [users, records]."""

    @property
    def shares(self) -> Tensor:
        """What each record weighs in its user's mean, float32 [users, records]."""
        return self.present.float() / self.present.sum(1, keepdim=True).clamp(min=1)

    def some(self, first: int, last: int) -> Held:
        """The users from ``first`` to before ``last``."""
        return Held(self.places[first:last], self.labels[first:last], self.present[first:last])

    def users(self, numbers: Tensor) -> Held:
        """The users of these numbers, int64 [n]."""
        return Held(self.places[numbers], self.labels[numbers], self.present[numbers])


class TaskReader(Protocol):
    """One task's rounds, as its class on the node would answer them."""

    key: tuple[object, ...]
    """Of the frozen features that `rows` builds on."""

    def features(self, images: Tensor) -> Tensor:
        """The expensive part of the rows, float32 [n, ...]; the same for readers of equal `key`."""

    def rows(self, features: Tensor) -> Tensor:
        """What sums are made of, float32 [n, width]."""

    def sums(self, rows: Tensor, held: Held) -> Tensor:
        """Each user's clipped updates added up over the rounds, float32 [users, P]."""


class FrozenReader:
    """Class-mean embeddings; all rounds ask the same."""

    def __init__(self, rounds: Sequence[TrainRequest], shape: ImageShape, classes: int) -> None:
        settings = FrozenSettings.model_validate(rounds[0].settings)
        self.key: tuple[object, ...] = ("patches", shape, settings.feature_seed)
        self._rounds, self._classes = rounds, classes
        self._features = public_features(shape, settings.feature_seed, torch.device("cpu"))

    def features(self, images: Tensor) -> Tensor:
        """The critic's frozen features, [n, dim]."""
        found: Tensor = self._features(images)
        return found

    def rows(self, features: Tensor) -> Tensor:
        """The same."""
        return features

    def sums(self, rows: Tensor, held: Held) -> Tensor:
        """Class sums over the records' number, clipped."""
        once = clipped(class_sums(rows[held.places], held, self._classes), self._rounds[0])
        return once * len(self._rounds)


class FocusedReader(FrozenReader):
    """Distances from the generator's class means along the focus, whose centres change."""

    def __init__(self, rounds: Sequence[TrainRequest], shape: ImageShape, classes: int) -> None:
        super().__init__(rounds, shape, classes)
        width = self._features.dim - 1
        self._foci = [focus_from(one.weights["critic"], width, classes) for one in rounds]

    def rows(self, features: Tensor) -> Tensor:
        """Places along the directions, [n, components]."""
        return self._foci[0].place(features[:, :-1])

    def sums(self, rows: Tensor, held: Held) -> Tensor:
        """Class sums of distances from each round's centres, clipped."""
        found = [
            clipped(
                class_sums(rows[held.places] - one.centers[held.labels], held, self._classes), r
            )
            for one, r in zip(self._foci, self._rounds, strict=True)
        ]
        return torch.stack(found).sum(0)


class AnnotatorReader:
    """Minus the gradients at each round's weight."""

    def __init__(self, rounds: Sequence[TrainRequest], shape: ImageShape, classes: int) -> None:
        self._rounds = rounds
        found = [_annotator(one, shape, classes) for one in rounds]
        self._annotator = found[0]
        self._weights = [one.weight for one in found]
        self.key: tuple[object, ...] = ("annotator", self._annotator.frame_digest())

    def features(self, images: Tensor) -> Tensor:
        """Framed features, [n, components + 1]."""
        return rows_of(self._annotator, images)

    def rows(self, features: Tensor) -> Tensor:
        """The same."""
        return features

    def sums(self, rows: Tensor, held: Held) -> Tensor:
        """Mean gradients, clipped, over the rounds."""
        own = rows[held.places]
        flat, labels, shares = own.flatten(0, 1), held.labels.flatten(), held.shares[..., None]
        total = torch.zeros(len(own), self._weights[0].numel())
        for weight, request in zip(self._weights, self._rounds, strict=True):
            wrong = errors(flat, labels, weight).view(*held.labels.shape, -1) * shares
            total += clipped(torch.bmm(wrong.mT, own).flatten(1), request)
        return total


def _annotator(request: TrainRequest, shape: ImageShape, classes: int) -> Annotator:
    settings = AnnotatorSettings.model_validate(request.settings)
    annotator = Annotator(shape, classes, settings.components, settings.features)
    load_vector(annotator, request.weights["annotator"])
    return annotator


def class_sums(rows: Tensor, held: Held, classes: int) -> Tensor:
    """Users' records [users, records, width] added up by class, [users, classes x width]."""
    kinds = one_hot(held.labels, classes) * held.shares[..., None]
    return torch.bmm(kinds.mT, rows).flatten(1)


def clipped(updates: Tensor, request: TrainRequest) -> Tensor:
    """Rows cut down to the request's clipping norm."""
    bound = request.mechanism.clipping_norm
    norms = updates.norm(dim=1, keepdim=True).clamp(min=1e-30)
    factors: Tensor = (bound / norms).clamp(max=1.0)
    return updates * factors


READERS: dict[str, Callable[[Sequence[TrainRequest], ImageShape, int], TaskReader]] = {
    "frozen": FrozenReader,
    "focused": FocusedReader,
    "annotator": AnnotatorReader,
}
"""By the kind of task whose releases can be read."""
