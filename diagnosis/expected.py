"""What nodes would release of reference users: the nodes' own rows, clip included.

A release is the mean of users' clipped updates, plus noise of known size. If a share p of users has
a fault, its expectation is (1 - p) x the mean of sound users + p x the mean of faulty ones.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.diagnosis.evidence import Evidence
from fedlens.diagnosis.held import AT_ONCE, HALVES, Held, named, slices
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.readers import READERS, TaskReader, compared
from fedlens.diagnosis.reference import Reference
from fedlens.diagnosis.threads import each_in_threads, in_threads
from fedlens.foundation.code_digest import code_sha256
from fedlens.models.faults.protocol import FaultSetting, Variant
from fedlens.models.precision import chosen as precision
from fedlens.models.precision import multiplying_in

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

    Rows of sound images are made once; how records are dealt out, named or left out costs no new
    ones. Those of images under a fault are made for a few users at a time and not kept.
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
            own = self._relabelled(hypothesis)
            return self.sums(self._sound, replace(own, places=self._places.gather(1, own.places)))
        moved = self._rows(self.images_under(hypothesis))
        rows = tuple(torch.cat(pair) for pair in zip(self._sound, moved, strict=True))
        faulty = self._moved(hypothesis.variant.chosen).places >= self.records
        return self.sums(rows, replace(self.held, places=self._places + faulty * len(moved[0])))

    def means(self, hypothesis: Hypothesis) -> Means:
        """The halves' means under a fault."""
        return self.means_of([hypothesis])[0]

    def means_of(self, alike: Sequence[Hypothesis]) -> list[Means]:
        """The same under each of some faults that do the same to images (`by_images`)."""
        if alike[0].fault.kind == "label":
            return self.means_of_labels(alike)
        chosen = [one.variant.chosen for one in alike]
        return self.means_of_images(self.images_under(alike[0]), chosen)

    def sound_means(self) -> Means:
        """The same of sound users."""
        return self._halves(self._sound_rows, [self._own])[0]

    def means_of_labels(self, hypotheses: Sequence[Hypothesis]) -> list[Means]:
        """The same under each of some faults of labels, which share all that images decide."""

        def some(first: int) -> list[Means]:
            ways = [self._relabelled(one) for one in hypotheses[first : first + WAYS]]
            return self._halves(self._sound_rows, ways)

        return [one for found in in_threads(some, range(0, len(hypotheses), WAYS)) for one in found]

    def means_of_images(
        self, images: Tensor, choices: Sequence[tuple[int, ...]] = ((),)
    ) -> list[Means]:
        """The halves' means with images in the place of some classes'; of all where none is named.

        Several choices of classes share what images decide.
        """
        if not any(choices):
            return self._halves(lambda own: self._rows_of(images[own]), [self._own])
        names = [name for chosen in choices for name in chosen]
        changed = torch.isin(self._labels, torch.tensor(names)) | (not all(choices))

        def beside(own: Tensor) -> Rows:
            """Sound rows, and after them those of changed images; of the others it is no matter."""
            rows, some = self._sound_rows(own), changed[own]
            moved = tuple(one.clone() for one in rows)
            for one, new in zip(moved, self._rows_of(images[own[some]]), strict=True):
                one[some] = new
            return tuple(torch.cat(pair, 1) for pair in zip(rows, moved, strict=True))

        return self._halves(beside, [self._moved(chosen) for chosen in choices])

    @torch.no_grad()
    def _halves(self, rows_of: Callable[[Tensor], Rows], ways: Sequence[Held]) -> list[Means]:
        """Means of both halves, a few users at a time.

        Args:
            rows_of: what makes users' rows [users, rows, width] of their images [users, records].
            ways: what users hold, by places among their own rows.
        """

        def summed(users: slice) -> Tensor:
            rows = rows_of(self._places[users])
            own = named([one.some(users) for one in ways], rows[0].shape[1], self.classes)
            parts = [
                reader.halves(made, own)[:, :, places] / noise
                for reader, made, noise, places in zip(
                    self._readers, rows, self._noise, self._compared, strict=True
                )
            ]
            return torch.cat(parts, 2)

        pairs = max(1, IMAGES_AT_ONCE // (2 * self.records))
        found = each_in_threads(summed, slices(len(self), 2 * pairs))
        total = functools.reduce(Tensor.add_, found)
        for number, half in enumerate(HALVES):
            total[:, number] /= max(1, len(self._places[half]))
        return [Means(*way.numpy()) for way in total]

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
        for users in slices(len(held), AT_ONCE):
            own, part = held.some(users), sums[users]
            each = zip(
                self._readers, rows, self._noise, self._compared, pairwise(ends), strict=True
            )
            for reader, made, noise, places, (begin, end) in each:
                found = reader.sums(made, own)[:, places].numpy()
                np.divide(found, np.float32(noise), out=part[:, begin:end])
        return sums

    @torch.no_grad()
    def _rows(self, images: Tensor) -> Rows:
        """Each task's rows, [n, width]."""
        parts = in_threads(self._rows_of, torch.split(images, IMAGES_AT_ONCE))
        return tuple(torch.cat(own) for own in zip(*parts, strict=True))

    @torch.no_grad()
    def _rows_of(self, images: Tensor) -> Rows:
        """The same, [..., width] of images [..., channels, height, width], all at once."""
        made: dict[tuple[object, ...], Tensor] = {}
        flat = images.flatten(0, -4)
        with multiplying_in(self._precision, images.device):
            for reader in self._readers:
                if reader.key not in made:
                    made[reader.key] = reader.features(flat)
            rows = [reader.rows(made[reader.key]) for reader in self._readers]
        return tuple(one.float().view(*images.shape[:-3], -1) for one in rows)

    def images_under(self, hypothesis: Hypothesis) -> Tensor:
        """All images under a fault of the images, whatever their classes."""
        fault, variant = hypothesis.fault, hypothesis.variant
        everywhere, images = Hypothesis(fault, Variant((), variant.amount)), self._images.clone()
        for user, own in enumerate(self._places):
            images[own] = self._applied(everywhere, images[own], self._labels[own], user)[0]
        return images

    def digest(self) -> str:
        """Of all that goes into the means but what faults do: equal ones make equal means."""
        found = hashlib.sha256(
            f"{code_sha256(CODE)} {torch.__version__} {self._precision}".encode()
        )
        for one in self._evidence:
            found.update(f"{self.classes} {one.digest}".encode())
        for part in (self._images, self._labels, self._places):
            found.update(repr(tuple(part.shape)).encode() + part.numpy().tobytes())
        return found.hexdigest()

    def _sound_rows(self, own: Tensor) -> Rows:
        return tuple(one[own] for one in self._sound)

    @property
    def _own(self) -> Held:
        """What sound users hold, by places among their own records."""
        return replace(self.held, places=torch.arange(self.records).expand_as(self._places))

    def _moved(self, chosen: tuple[int, ...]) -> Held:
        """The same with these classes' records after all sound ones; all classes' of none."""
        own = self._own
        changed = torch.isin(own.labels, torch.tensor(chosen)) if chosen else own.present
        return replace(own, places=own.places + changed * self.records)

    def _relabelled(self, hypothesis: Hypothesis) -> Held:
        """What users hold, by places among their own: labels and the choice of records change.

        Numbers of images stand for images.
        """
        places, labels = self._own.places.clone(), torch.zeros_like(self._places)
        present = torch.zeros_like(self._places, dtype=torch.bool)
        numbers = torch.arange(self.records).view(-1, 1, 1, 1)
        for user, own in enumerate(self._places):
            left, names = self._applied(hypothesis, numbers, self._labels[own], user)
            count = min(len(names), self.records)
            places[user, :count] = left.flatten()[:count]
            labels[user, :count], present[user, :count] = names[:count], True
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
