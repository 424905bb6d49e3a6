"""What nodes would release of reference users: the nodes' own rows, clip included.

A release is the mean of users' clipped updates, plus noise of known size. If a share p of users has
a fault, its expectation is (1 - p) x the mean of sound users + p x the mean of faulty ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.diagnosis.evidence import Evidence
from fedlens.diagnosis.held import AT_ONCE, Held, Named
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.readers import READERS, TaskReader, compared
from fedlens.diagnosis.reference import Reference
from fedlens.diagnosis.threads import in_threads
from fedlens.foundation.code_digest import code_sha256
from fedlens.models.faults.protocol import FaultSetting, Variant
from fedlens.models.precision import chosen as precision
from fedlens.models.precision import multiplying_in
from fedlens.models.shapes import one_hot

Matrix = NDArray[np.float32]
Rows = tuple[Tensor, ...]
"""One set of images' rows for each task."""
_FAULT = 12
PICTURED = 500
"""Images of the reference whose mean is shown."""
IMAGES_AT_ONCE = 250
"""Whose features are in memory together: as many as a processor's caches like."""
CODE = ("fedlens.client", "fedlens.diagnosis", "fedlens.models")
"""Packages whose code decides what is expected."""
WAYS = 8
"""Faults of labels that are computed together."""


@dataclass(frozen=True)
class Means:
    """Mean updates of two halves of the reference users: their errors are independent."""

    one: Matrix
    """float32 [P], over the noise's standard deviation."""
    other: Matrix

    @property
    def middle(self) -> Matrix:
        """Mean over all users."""
        return ((self.one + self.other) / 2).astype(np.float32)


class ReferenceSums:
    """Reference users' clipped updates in all tasks, sound and under any fault.

    Rows of images are made once; how records are dealt out, named or left out costs no new ones.
    """

    def __init__(self, evidence: Sequence[Evidence], reference: Reference, records: int) -> None:
        """Deal the reference out to users of so many records each, the same way each time.

        Raises:
            WrongUse: there are too few images.
        """
        self._readers: list[TaskReader] = [
            READERS[one.first.request.kind](
                [each.request for each in one.rounds], one.first.shape, one.first.classes
            )
            for one in evidence
        ]
        self._evidence = tuple(evidence)
        self._noise = [one.deviation for one in evidence]
        self._compared = [compared(one.first) for one in evidence]
        self.classes, self.records = reference.classes, records
        self._reference, self._places = reference, reference.dealt(records)
        self._images, self._labels = reference.images, reference.labels
        self._precision = torch.float32
        self._sound = self._rows(self._images)

    def dealt(self, records: int) -> ReferenceSums:
        """The same rows, dealt out to users of another number of records."""
        made = copy(self)
        made.records, made._places = records, self._reference.dealt(records)
        return made

    def first(self, users: int) -> ReferenceSums:
        """The first users alone: a part of the work, for what need not be known well."""
        return self._only(self._places[: min(users, len(self))])

    def evened(self, users: int) -> ReferenceSums:
        """The images of the first users alone, dealt out anew so that each holds every class.

        What a change of images changes is then not blurred by who holds which class. Those of even
        users stay with even ones, so that halves stay apart.
        """
        users = min(users, len(self)) // 2 * 2
        halved = []
        for half in range(2):
            own = self._places[half:users:2]
            order = own.flatten()[torch.argsort(self._labels[own.flatten()], stable=True)]
            halved.append(order.view(own.shape[1], own.shape[0]).mT)
        return self._only(torch.stack(halved, 1).flatten(0, 1))

    def _only(self, places: Tensor) -> ReferenceSums:
        """Users of these images [users, records] alone, in the precision that is fast here.

        Changes are differences of such means, in which what rounding does cancels.
        """
        made, rows = copy(self), places.flatten()
        made._places = torch.arange(len(rows)).view_as(places)
        made._images, made._labels = self._images[rows], self._labels[rows]
        made._precision = precision("auto")
        made._sound = made._rows(made._images)
        return made

    def __len__(self) -> int:
        """Number of users."""
        return len(self._places)

    @property
    def held(self) -> Held:
        """What sound users hold."""
        return _all_present(self._places, self._labels[self._places])

    def labels_of(self, places: Tensor) -> Tensor:
        """Labels of images, int64 of the shape of ``places``."""
        return self._labels[places]

    def sound(self, places: Tensor | None = None) -> Matrix:
        """Each sound user's updates over the noise, float32 [users, P].

        Args:
            places: int64 [users, records], which images users hold; None: as they are dealt out.
        """
        places = self._places if places is None else places
        return self.sums(self._sound, _all_present(places, self._labels[places]))

    def under(self, hypothesis: Hypothesis) -> Matrix:
        """The same where every user has a fault."""
        if hypothesis.fault.kind == "label":
            return self.sums(self._sound, self._relabelled(hypothesis))[: len(self)]
        images, chosen = self.images_under(hypothesis), hypothesis.variant.chosen
        return self.sums(self._rows_with(images, chosen), self.held)

    def means(self, hypothesis: Hypothesis) -> Means:
        """The halves' means under a fault."""
        if hypothesis.fault.kind == "label":
            return self.means_of_labels([hypothesis])[0]
        return self.means_of_images(self.images_under(hypothesis), hypothesis.variant.chosen)

    def sound_means(self) -> Means:
        """The same of sound users."""
        return self._halves(self._sound, [self.held])[0]

    def means_of_labels(self, hypotheses: Sequence[Hypothesis]) -> list[Means]:
        """The same under each of some faults of labels, which share all that images decide."""

        def some(first: int) -> list[Means]:
            ways = [self._relabelled(one) for one in hypotheses[first : first + WAYS]]
            return self._halves(self._sound, ways)

        return [one for found in in_threads(some, range(0, len(hypotheses), WAYS)) for one in found]

    @torch.no_grad()
    def _halves(self, rows: Rows, ways: Sequence[Held]) -> list[Means]:
        named = Named(self._places, torch.stack([self._weights(one) for one in ways]), ways)
        parts = [
            reader.halves(own, named)[:, :, places] / noise
            for reader, own, noise, places in zip(
                self._readers, rows, self._noise, self._compared, strict=True
            )
        ]
        return [Means(*way.numpy()) for way in torch.cat(parts, 2)]

    def _weights(self, held: Held) -> Tensor:
        """What users' own records count for under each name, [users, classes, records]."""
        own = self._places[:, None, :] == held.places[:, :, None]  # [users, held, own]
        kinds = one_hot(held.labels, self.classes) * held.shares[..., None]
        return kinds.mT @ own.float()

    def mean_images(self, hypothesis: Hypothesis | None = None) -> Tensor:
        """Mean image of each class of some of the reference, [classes, channels, height, width].

        Args:
            hypothesis: a fault of the images that all of them have; None for sound ones.
        """
        images, labels = self._images[:PICTURED], self._labels[:PICTURED]
        if hypothesis is not None:
            images, _ = self._applied(hypothesis, images, labels, 0)
        total = torch.zeros(self.classes, *images.shape[1:]).index_add_(0, labels, images)
        counts = torch.bincount(labels, minlength=self.classes).clamp(min=1)
        return total / counts[:, None, None, None]

    def sums(self, rows: Rows, held: Held) -> Matrix:
        """Users' clipped updates in all tasks side by side, over the noise, float32 [users, P]."""
        ends = np.cumsum([0, *(len(one.value) for one in self._evidence)])
        sums = np.empty((len(held), int(ends[-1])), np.float32)
        for first in range(0, len(held), AT_ONCE):
            own, part = held.some(first, first + AT_ONCE), sums[first : first + AT_ONCE]
            each = zip(
                self._readers, rows, self._noise, self._compared, pairwise(ends), strict=True
            )
            for reader, made, noise, places, (begin, end) in each:
                found = reader.sums(made, own)[:, places].numpy()
                np.divide(found, np.float32(noise), out=part[:, begin:end])
        return sums

    @torch.no_grad()
    def _rows(self, images: Tensor) -> Rows:
        parts = [self._rows_of(part) for part in torch.split(images, IMAGES_AT_ONCE)]
        return tuple(torch.cat(own) for own in zip(*parts, strict=True))

    def _rows_of(self, images: Tensor) -> Rows:
        made: dict[tuple[object, ...], Tensor] = {}
        with multiplying_in(self._precision, images.device):
            for reader in self._readers:
                if reader.key not in made:
                    made[reader.key] = reader.features(images)
            rows = [reader.rows(made[reader.key]) for reader in self._readers]
        return tuple(one.float() for one in rows)

    def images_under(self, hypothesis: Hypothesis) -> Tensor:
        """All images under a fault of the images, whatever their classes."""
        fault, variant = hypothesis.fault, hypothesis.variant
        everywhere, images = Hypothesis(fault, Variant((), variant.amount)), self._images.clone()
        for user, own in enumerate(self._places):
            images[own] = self._applied(everywhere, images[own], self._labels[own], user)[0]
        return images

    def means_of_images(self, images: Tensor, chosen: tuple[int, ...]) -> Means:
        """The halves' means with images in these classes' place; in all classes' where none is."""
        return self._halves(self._rows_with(images, chosen), [self.held])[0]

    def digest(self) -> str:
        """Of all that goes into the means but what faults do: equal ones make equal means."""
        found = hashlib.sha256(
            f"{code_sha256(CODE)} {torch.__version__} {self._precision}".encode()
        )
        for one in self._evidence:
            for each in one.rounds:
                asked = each.request
                said = [asked.kind, dict(asked.settings), asked.mechanism.clipping_norm, each.shape]
                found.update(repr([*said, self.classes, one.deviation]).encode())
                for name in sorted(asked.weights):
                    found.update(name.encode() + asked.weights[name].tobytes())
        for part in (self._images, self._labels, self._places):
            found.update(repr(tuple(part.shape)).encode() + part.numpy().tobytes())
        return found.hexdigest()

    def _rows_with(self, images: Tensor, chosen: tuple[int, ...]) -> Rows:
        if not chosen:
            return self._rows(images)
        touched = torch.isin(self._labels, torch.tensor(chosen))
        rows = tuple(one.clone() for one in self._sound)
        for one, new in zip(rows, self._rows(images[touched]), strict=True):
            one[touched] = new
        return rows

    def _relabelled(self, hypothesis: Hypothesis) -> Held:
        """What users hold: labels and the choice of records alone change.

        Numbers of images stand for images.
        """
        places, labels = self._places.clone(), torch.zeros_like(self._places)
        present = torch.zeros_like(self._places, dtype=torch.bool)
        for user, own in enumerate(self._places):
            numbers = own.view(-1, 1, 1, 1)
            left, named = self._applied(hypothesis, numbers, self._labels[own], user)
            count = min(len(named), self.records)
            places[user, :count] = left.flatten()[:count]
            labels[user, :count], present[user, :count] = named[:count], True
        return Held(places, labels, present)

    def _applied(
        self, hypothesis: Hypothesis, images: Tensor, labels: Tensor, user: int
    ) -> tuple[Tensor, Tensor]:
        state = np.random.SeedSequence([_FAULT, user])
        seed = int(state.generate_state(1, np.uint32)[0])
        variant = hypothesis.variant
        setting = FaultSetting(self.classes, variant.chosen, variant.amount, seed)
        return hypothesis.fault.applied(images, labels, setting)

    def class_shares(self, hypothesis: Hypothesis | None = None) -> NDArray[np.float64]:
        """Share of each class among all records, float64 [classes]."""
        labels = self._labels[self._places].flatten()
        if hypothesis is not None:
            found = [
                self._applied(hypothesis, own.view(-1, 1, 1, 1), self._labels[own], user)[1]
                for user, own in enumerate(self._places)
            ]
            labels = torch.cat(found)
        counts = torch.bincount(labels, minlength=self.classes).double()
        return (counts / counts.sum()).numpy()


def _all_present(places: Tensor, labels: Tensor) -> Held:
    return Held(places, labels, torch.ones_like(labels, dtype=torch.bool))


def halves(rows: Matrix) -> Means:
    """Means over the even and over the odd users."""
    return Means(rows[::2].mean(0), rows[1::2].mean(0))
