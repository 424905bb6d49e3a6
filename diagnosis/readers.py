"""How each kind of task turns records into what users release: the nodes' own rows, many at once.

A reader splits a task's update in two: rows that depend on images alone, which are expensive and
made once for a set of images, and the users' clipped sums of them, which are cheap. So a thousand
ways to deal records out, to name them or to leave some out cost no new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.annotator import errors
from fedlens.client.tasks.frozen import public_features
from fedlens.client.tasks.settings import AnnotatorSettings, FrozenSettings
from fedlens.diagnosis.cards.reader import CardReader, card_parts, card_places
from fedlens.diagnosis.held import HALVES, Held, Named, clipped, shortened
from fedlens.models.annotators import Annotator
from fedlens.models.focus import focus_from
from fedlens.models.shapes import ImageShape, one_hot
from fedlens.models.weights import load_vector
from fedlens.server.round.releases import ArchivedRelease

Places = NDArray[np.int64] | slice


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

    def halves(self, rows: Tensor, named: Named) -> Tensor:
        """`sums` added up over the even and over the odd of some users, float32 [ways, 2, P].

        Without the users' own sums, which are long: the clip asks for their norms alone, and these
        follow from products of a user's few rows with each other.

        Args:
            rows: the users' own, [users, rows, width].
            named: what they count for.
        """


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

    def halves(self, rows: Tensor, named: Named) -> Tensor:
        """Rows' weights, cut by the clip, times the rows."""
        weights = named.weights
        norms = _norms(rows @ rows.mT, weights)
        factors = shortened(norms, self._rounds[0]) * len(self._rounds)
        cut = (weights * factors[..., None, None]).transpose(1, 2)
        apart = torch.zeros(len(weights), 2, *cut.shape[1:])
        for number, half in enumerate(HALVES):
            apart[:, number, :, half] = cut[:, :, half]
        return (apart.flatten(3).flatten(0, 2) @ rows.flatten(0, 1)).view(len(weights), 2, -1)


class FocusedReader(FrozenReader):
    """Distances from the generator's class means along the focus, whose centres change."""

    def __init__(self, rounds: Sequence[TrainRequest], shape: ImageShape, classes: int) -> None:
        super().__init__(rounds, shape, classes)
        width = self._features.dim - 1
        foci = [focus_from(one.weights["critic"], width, classes) for one in rounds]
        self._focus, self._centers = foci[0], [one.centers.clone() for one in foci]

    def rows(self, features: Tensor) -> Tensor:
        """Places along the directions, [n, components]."""
        return self._focus.place(features[:, :-1])

    def sums(self, rows: Tensor, held: Held) -> Tensor:
        """Class sums of distances from each round's centres, clipped."""
        found = [
            clipped(class_sums(rows[held.places] - own[held.labels], held, self._classes), r)
            for own, r in zip(self._centers, self._rounds, strict=True)
        ]
        return torch.stack(found).sum(0)

    def halves(self, rows: Tensor, named: Named) -> Tensor:
        """Class sums less their part of each round's centres, clipped."""
        sums, shares = named.weights @ rows, named.weights.sum(3)[..., None]
        found = 0 * sums.flatten(2)
        for own, request in zip(self._centers, self._rounds, strict=True):
            updates = (sums - shares * own).flatten(2)
            found += updates * shortened(updates.norm(dim=2), request)[..., None]
        return torch.stack([found[:, half].sum(1) for half in HALVES], 1)


class AnnotatorReader:
    """Minus the gradients at each round's weight."""

    def __init__(self, rounds: Sequence[TrainRequest], shape: ImageShape, classes: int) -> None:
        self._rounds = rounds
        self._annotator = _annotator(rounds[0], shape, classes)  # all rounds have its frame
        self._weights = [_annotator(one, shape, classes).weight.clone() for one in rounds]
        self.key: tuple[object, ...] = ("annotator", self._annotator.frame_digest())

    def features(self, images: Tensor) -> Tensor:
        """Framed features, [n, components + 1]."""
        return self._annotator.rows(images)

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

    def halves(self, rows: Tensor, named: Named) -> Tensor:
        """Errors of all rounds, each cut by its clip, times rows: rounds differ in errors alone."""
        asked, products = named.weights.mT, rows @ rows.mT
        shares, total = named.weights.sum(2)[..., None], torch.zeros_like(asked)
        for weight, request in zip(self._weights, self._rounds, strict=True):
            wrong = asked - shares * torch.softmax(rows @ weight.mT, 2)
            norms = _norms(products, wrong.mT)
            total += wrong * shortened(norms, request)[..., None, None]
        found = [total[:, h].flatten(1, 2).mT @ rows[h].flatten(0, 1) for h in HALVES]
        return torch.stack([one.flatten(1) for one in found], 1)


def _annotator(request: TrainRequest, shape: ImageShape, classes: int) -> Annotator:
    settings = AnnotatorSettings.model_validate(request.settings)
    annotator = Annotator(shape, classes, settings.components, settings.features)
    load_vector(annotator, request.weights["annotator"])
    return annotator


def class_sums(rows: Tensor, held: Held, classes: int) -> Tensor:
    """Users' records [users, records, width] added up by class, [users, classes x width]."""
    kinds = one_hot(held.labels, classes) * held.shares[..., None]
    return torch.bmm(kinds.mT, rows).flatten(1)


def _norms(products: Tensor, weights: Tensor) -> Tensor:
    """Norms of weighted sums of a user's rows, all sums of a user taken together, [ways, users].

    Args:
        products: of the rows with each other, [users, rows, rows].
        weights: [ways, users, sums, rows].
    """
    squares = ((weights @ products) * weights).sum((2, 3))
    return squares.clamp(min=0).sqrt()


READERS: dict[str, Callable[[Sequence[TrainRequest], ImageShape, int], TaskReader]] = {
    "frozen": FrozenReader,
    "focused": FocusedReader,
    "annotator": AnnotatorReader,
    "card": CardReader,
}
"""By the kind of task whose releases can be read."""


def compared(first: ArchivedRelease) -> Places:
    """Places of a release's numbers that are compared with a reference: of most tasks all."""
    if first.request.kind == "card":
        return card_places(first.shape, first.classes).numpy()
    return slice(None)


def parts_in(first: ArchivedRelease, width: int) -> NDArray[np.int64]:
    """Where, among so many compared numbers, a task's parts begin: its classes, or statistics."""
    if first.request.kind == "card":
        return card_parts(first.shape, first.classes)
    return width // first.classes * np.arange(first.classes)
