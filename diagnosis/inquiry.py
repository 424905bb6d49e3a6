"""What is observed beside what is expected: the releases of a run, the reference, hypotheses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.diagnosis.cards.reader import commonest_records, copies_place
from fedlens.diagnosis.evidence import Observed
from fedlens.diagnosis.expected import Matrix, Means, ReferenceSums
from fedlens.diagnosis.hypotheses import Hypothesis, by_images
from fedlens.diagnosis.model import (
    CARD_TONE_DRIFT,
    CLASS_DRIFT,
    FAULT_DRIFT,
    MORE_DRIFT,
    TONE_DRIFT,
    TONES,
    Disturbance,
    Geometry,
    LinearModel,
)
from fedlens.diagnosis.reference import LEAST_USERS, Reference
from fedlens.diagnosis.stored_changes import StoredChanges
from fedlens.diagnosis.surprises import UNNAMED, surprises
from fedlens.diagnosis.threads import each_in_threads, in_threads
from fedlens.foundation.memory import give_back_memory

LIBRARY = 400
"""Images by which it is learnt what each fault of images changes, before it is known which of them
are needed: these are then computed by all."""
SIZED = 1000
"""Images by which it is told how many records a user holds."""
SURPRISED = 160
"""Images by which it is learnt what changes that are in no library change."""
FEWEST = 20
"""Users whom these images make at least."""
DEALS = 2
"""Times, of either kind, that the reference is dealt out to learn how users differ: ten records
hide each other."""
_DEALT = 14
OnStep = Callable[[int, int], None]
"""Told how many hypotheses are computed, and how many there are."""
OnStage = Callable[[str], None]
"""Told the name of each of `fedlens.diagnosis.steps.STEPS` as it begins."""
FITTING = 0.1
"""How far a user's contribution may be from the reference's before other sizes are tried."""
RECORDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""What a user may hold, to be tried where no number is declared or it does not fit."""


class Inquiry:
    """Hypotheses about what was observed; more can be added."""

    def __init__(
        self,
        observed: Observed,
        reference: Reference,
        records: int,
        hypotheses: Sequence[Hypothesis],
        on_step: OnStep | None = None,
        *,
        surprised: bool = True,
        stored_at: Path | None = None,
        class_names: Sequence[str] = (),
    ) -> None:
        """Compute what reference users of so many records would have released.

        Args:
            observed: the releases.
            reference: of which users are made.
            records: that each of them holds.
            hypotheses: the library; the reference may differ a little from users in these ways.
            on_step: told how far it is.
            surprised: whether changes that are in no library are looked at too.
            stored_at: folder where what changes of images change is stored; None: nowhere.
            class_names: what people call the classes; empty where they have numbers alone.
        """
        self._stored_at, self.class_names = stored_at, tuple(class_names)
        self.reference = ReferenceSums(observed.evidence, reference, records)
        self.classes, self.observed = reference.classes, observed
        self._cards, self._copies = _card_places(observed)
        self.hypotheses: list[Hypothesis] = []
        base = self.reference.sound_means()
        means = self._library(hypotheses, base, on_step)
        self._behind = max(reference.behind, len(self.reference) * records)
        (first, one), (second, other) = self._chance(0), self._chance(1)
        rows = (np.arange(len(first)) < one, np.arange(len(second)) < other)
        self._are_users = np.concatenate(rows)
        halves = [(m.one for m in [base, *means]), (m.other for m in [base, *means])]
        drifts = in_threads(lambda half: self._drifts(hypotheses, *half), halves)
        self.geometry = Geometry(base, Disturbance(first, second, *drifts))
        del drifts, first, second
        self.geometry.add(means)
        self.named = len(hypotheses)
        if surprised:
            self.geometry.add(self._surprises(base))

    def add(self, hypotheses: Sequence[Hypothesis]) -> None:
        """Look at more hypotheses; the reference is not taken to differ in their ways.

        They are looked at by all of the reference's users.
        """
        self.hypotheses += hypotheses
        alike = by_images(hypotheses)
        found = chain(*in_threads(self.reference.means_of, alike))
        means = dict(zip(chain(*alike), found, strict=True))
        self.geometry.add([means[one] for one in hypotheses])

    def describe(self, place: int) -> str:
        """A hypothesis in words."""
        return self.hypotheses[place].described(self.class_names)

    @property
    def others(self) -> list[int]:
        """Places of the changes of images that are looked at from the start: all but the added."""
        return [
            place
            for place, one in enumerate(self.hypotheses)
            if one.fault.kind == "image" and (place < self.named or one.fault.name == UNNAMED)
        ]

    def _library(
        self, hypotheses: Sequence[Hypothesis], base: Means, on_step: OnStep | None
    ) -> list[Means]:
        """Labels by all users, as images are the same; changes of images by the first of them."""
        images = [one for one in hypotheses if one.fault.kind == "image"]
        labels = [one for one in hypotheses if one.fault.kind == "label"]
        known = dict(zip(labels, self.reference.means_of_labels(labels), strict=True))
        done = len(hypotheses) - len(images)

        def tell(number: int) -> None:
            if on_step is not None:
                on_step(done + number, len(hypotheses))

        few = self.reference.first(self._users_of(LIBRARY))
        moved = self._changed("library", few, images, base, tell)
        known |= dict(zip(images, moved, strict=True))
        self.hypotheses += hypotheses
        return [known[one] for one in hypotheses]

    def _users_of(self, images: int) -> int:
        """How many users so many images make; as many of either half."""
        return max(FEWEST, images // self.reference.records) // 2 * 2

    def _surprises(self, base: Means) -> list[Means]:
        """What changes of no library change, by a few users of either half."""
        found = surprises()
        self.hypotheses += found
        few = self.reference.evened(self._users_of(SURPRISED))
        return self._changed("surprises", few, found, base)

    def _changed(
        self,
        name: str,
        few: ReferenceSums,
        hypotheses: Sequence[Hypothesis],
        base: Means,
        tell: Callable[[int], None] | None = None,
    ) -> list[Means]:
        """Means of all users under changes of images, by what these change in a few of them."""
        own, both = few.sound_means(), np.stack([base.one, base.other])
        path = None if self._stored_at is None else self._stored_at / f"{name}.changes"
        stored = StoredChanges(path, "" if path is None else few.digest())

        def moved(alike: Sequence[Hypothesis]) -> list[Means]:
            images, choices = few.images_under(alike[0]), [one.variant.chosen for one in alike]
            content = images.numpy().tobytes()
            names = [hashlib.sha256(content + repr(one).encode()).hexdigest() for one in choices]
            known = {name: change for name in names if (change := stored.find(name)) is not None}
            new = {name: one for name, one in zip(names, choices, strict=True) if name not in known}
            found = few.means_of_images(images, list(new.values())) if new else []
            for name, mean in zip(new, found, strict=True):
                change = np.stack([mean.one - own.one, mean.other - own.other])
                known[name] = stored.keep(name, change)
            return [Means(*(known[name] + both)) for name in names]

        means: dict[Hypothesis, Means] = {}
        alike = by_images(hypotheses)
        for some, found in zip(alike, each_in_threads(moved, alike), strict=True):
            means |= zip(some, found, strict=True)
            if tell is not None:
                tell(len(means))
        stored.save()
        give_back_memory(cycles=False)
        return [means[one] for one in hypotheses]

    def _drifts(self, hypotheses: Sequence[Hypothesis], middle: Matrix, *moved: Matrix) -> Matrix:
        """All of them as one half of the reference shows them, [drifts, P].

        Args:
            hypotheses: of the library.
            middle: the half's mean.
            moved: the same under each hypothesis.
        """
        found = [np.float32(self.observed.size_drift) * part for part in self._by_task(middle)]
        typical, own = _typical(hypotheses, middle, moved), np.float32(self.observed.people_drift)
        for one, mean in zip(hypotheses, moved, strict=True):
            found += [own * drift for drift in self._drift(one, mean - middle, typical)]
        rows = np.stack(found)
        rows[:, self._copies] = 0  # other people hold more of a class, and no copies of it
        return rows

    def _by_task(self, middle: Matrix) -> list[Matrix]:
        """The sound mean in one task's coordinates, zero elsewhere: each clips at its own norm."""
        ends = np.cumsum([0, *(len(one.value) for one in self.observed.evidence)])
        parts = []
        for first, last in pairwise(ends):
            parts.append(np.zeros_like(middle))
            parts[-1][first:last] = middle[first:last]
        return parts

    def _drift(self, one: Hypothesis, change: Matrix, typical: float) -> list[Matrix]:
        """How a reference without faults may differ by one standard deviation in this way."""
        if one.fault.name in TONES:
            features = np.where(self._cards, 0, np.float32(TONE_DRIFT) * change)
            counted = np.where(self._cards, np.float32(CARD_TONE_DRIFT) * change, 0)
            return [features, counted] if self._cards.any() else [features]
        if one.fault.kind == "image":
            size = float(np.linalg.norm(change))
            own = FAULT_DRIFT * MORE_DRIFT.get(one.fault.name, 1.0)
            return [np.float32(own * max(1.0, typical / max(size, 1e-9))) * change]
        if one.fault.name != "frequent_class":
            return []
        number = one.variant.chosen[0]
        before, after = (self.reference.class_shares(given)[number] for given in (None, one))
        if not before or after <= before:
            return []
        return [np.float32(CLASS_DRIFT / (after / before - 1)) * change]

    def _chance(self, first: int) -> tuple[Matrix, int]:
        """What chance does: which users there are, and which are in the reference, [m, P].

        By every other reference user from the first or the second on, dealt out several times. Of
        the second kind of chance the reference's classes have no part where it has the shares of a
        larger set.

        Returns:
            One standard deviation a row, and how many rows are of the first kind.
        """
        own, source = self.reference.held.places[first::2], torch.Generator().manual_seed(_DEALT)
        variances = [self._of_users()] + [self._of_reference()] * (self._of_reference() > 0)
        deals = [
            (self._dealt(own, source, evenly=kind > 0), variance)
            for kind, variance in enumerate(variances)
            for _ in range(DEALS)
        ]
        count = len(own)
        rows = np.empty((len(deals) * count, len(self.observed.value)), np.float32)

        def fill(number: int) -> None:
            dealt, variance = deals[number]
            found = self.reference.sound(dealt)
            found -= found.mean(0)
            size = np.float32(np.sqrt(variance / (DEALS * count) / (1 - 1 / count)))
            np.multiply(found, size, out=rows[number * count : (number + 1) * count])

        in_threads(fill, range(len(deals)))
        return rows, DEALS * count

    def _dealt(self, own: Tensor, source: torch.Generator, *, evenly: bool) -> Tensor:
        """The same images dealt out anew, whatever their classes or each class among all users."""
        order = torch.randperm(own.numel(), generator=source)
        if not evenly:
            return own.flatten()[order].view_as(own)
        labels = self.reference.labels_of(own.flatten())
        ranked = order[torch.argsort(labels[order], stable=True)]
        return own.flatten()[ranked].view(own.shape[1], own.shape[0]).mT

    def _of_users(self, users: float = 0.0) -> float:
        """Variance of the mean over users, and over the set behind the reference, in one user's."""
        users, difference = users or self.observed.users, self.observed.difference
        if difference:
            return 2 / users
        return 1 / users + self.reference.records / self._behind

    def _of_reference(self) -> float:
        """The same of the reference, beyond that of the set behind it."""
        if self.observed.difference:
            return 0.0
        return max(0.0, 1 / len(self.reference) - self.reference.records / self._behind)

    def with_users(self, users: float, noise: float) -> LinearModel:
        """The model of a release of so many users, with ``noise`` times this one's deviation."""
        factors = self.factors(users, noise)
        return self.geometry.rescaled(factors).model(np.zeros(len(factors)))

    def factors(self, users: float, noise: float) -> NDArray[np.float64]:
        """What each vector of the geometry is multiplied by then, float64 [vectors]."""
        factors = np.full(len(self.geometry.gram), 1 / noise)
        chances = factors[: len(self._are_users)]
        chances[self._are_users] *= np.sqrt(self._of_users(users) / self._of_users())
        return factors

    def model(self) -> LinearModel:
        """All hypotheses so far, about what was observed."""
        seen = self.geometry.project(self.observed.value[None])[0]
        return self.geometry.model(seen, difference=self.observed.difference)


def _card_places(observed: Observed) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of the numbers are of data cards, bool [P], and which of those are about copies."""
    cards, copies = [], []
    for one in observed.evidence:
        first, numbers = one.first, np.arange(len(one.value))
        cards.append(np.full(len(numbers), first.request.kind == "card"))
        copies.append(cards[-1] & (numbers == copies_place(first.shape, first.classes)))
    return np.concatenate(cards), np.concatenate(copies)


def _typical(hypotheses: Sequence[Hypothesis], middle: Matrix, moved: Sequence[Matrix]) -> float:
    """Median size of what a fault of the images changes."""
    changed = (
        mean - middle
        for one, mean in zip(hypotheses, moved, strict=True)
        if one.fault.kind == "image"
    )
    sizes = [float(np.linalg.norm(change)) for change in changed]
    return float(np.median(sizes)) if sizes else 0.0


def fitting_records(observed: Observed, reference: Reference) -> int:
    """How many records a user holds: as declared, or what fits the size of a release best.

    A card alone, whose size is the same whatever a user holds, says by itself how many they are.
    """
    sized = [one for one in observed.evidence if one.first.request.kind != "card"]
    if not sized:
        return _counted(observed, reference)
    first = Observed((sized[0],), observed.users)
    declared = observed.first.request.records_per_user
    reference.dealt(max(1, declared))  # refuses a reference that is too small
    few = reference.first(max(SIZED, LEAST_USERS * max(declared, *RECORDS)))
    sums = ReferenceSums(first.evidence, few, 1)
    most = min(max(RECORDS), len(few.labels) // LEAST_USERS)
    if declared:
        if abs(_misfit(first, sums, declared)) < FITTING:
            return declared
        most = min(most, declared)
    tried = [records for records in RECORDS if records <= most] or [1]
    misfits = in_threads(lambda records: abs(_misfit(first, sums, records)), tried)
    return tried[int(np.argmin(misfits))]


def _counted(observed: Observed, reference: Reference) -> int:
    """What most users hold, as a card says; no more than is declared."""
    evidence = observed.evidence[0]
    mean = np.mean([one.release for one in evidence.rounds], axis=0)
    found = commonest_records(mean, evidence.first.shape, evidence.first.classes)
    declared = evidence.first.request.records_per_user or found
    found = min(found, declared, len(reference.labels) // LEAST_USERS)
    reference.dealt(max(1, found))  # refuses a reference that is too small
    return max(1, found)


def _misfit(observed: Observed, sums: ReferenceSums, records: int) -> float:
    """Logarithm of the mass that users contribute over what reference users of so many records do.

    A record's mass is the same whatever the image, and the fewer records a user has the more of it
    the clip takes away: it says how many there are, and hardly changes with faults.
    """
    middle = sums.dealt(records).sound_means().middle.reshape(sums.classes, -1)[:, -1]
    seen = observed.value.reshape(sums.classes, -1)[:, -1]
    return float(np.log(max(1e-9, seen.sum() / middle.sum())))
