"""What is observed beside what is expected: the releases of a run, the reference, hypotheses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from foundation.errors import WrongUse
from server.diagnosis.expected import Matrix, Means, all_updates, expected
from server.diagnosis.hypotheses import Hypothesis
from server.diagnosis.model import (
    CLASS_DRIFT,
    FAULT_DRIFT,
    SIZE_DRIFT,
    Drift,
    LinearModel,
    linear_model,
)
from server.diagnosis.reference import LEAST_USERS, Reference, ReferenceUsers
from server.kept_releases import KeptRelease

DEALS = 4
"""Times that the reference is dealt out to learn how users differ: ten records hide each other."""
OnStep = Callable[[int, int], None]
"""Told how many hypotheses are computed, and how many there are."""
FITTING = 0.1
"""How far a user's contribution may be from the reference's before other sizes are tried."""
RECORDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""What a user may hold, to be tried where no number is declared or it does not fit."""


def difference_of(after: Sequence[KeptRelease], before: Sequence[KeptRelease]) -> list[KeptRelease]:
    """Releases of one run less those of an earlier one, where both asked the same.

    Raises:
        WrongUse: they asked nothing alike.
    """
    found = []
    for later in after:
        for earlier in before:
            if _alike(later, earlier):
                value = later.release - earlier.release
                noise = float(np.hypot(later.deviation, earlier.deviation))
                found.append(replace(later, release=value, deviation=noise))
                break
    if not found:
        raise WrongUse(
            "the two runs share no task of kind 'frozen' with equal feature_seed and "
            "clipping_norm: take another run, or public data, as reference"
        )
    return found


def _alike(one: KeptRelease, other: KeptRelease) -> bool:
    same_clip = one.request.mechanism.clipping_norm == other.request.mechanism.clipping_norm
    return (
        one.request.kind == other.request.kind
        and not (one.request.weights or other.request.weights)
        and dict(one.request.settings) == dict(other.request.settings)
        and same_clip
        and (one.shape, one.classes) == (other.shape, other.classes)
        and one.request.records_per_user == other.request.records_per_user
    )


@dataclass(frozen=True)
class Observed:
    """Releases that go into one model."""

    releases: tuple[KeptRelease, ...]
    users: float
    """Expected users behind a release: q N."""
    difference: bool = False

    @property
    def value(self) -> Matrix:
        """All of them over their noise, float32 [sum of P]."""
        parts = [(one.release / one.deviation).astype(np.float32) for one in self.releases]
        return np.concatenate(parts)


class Inquiry:
    """Hypotheses about what was observed; more can be added."""

    def __init__(self, observed: Observed, reference: Reference, records: int) -> None:
        """Compute what sound reference users of so many records would have released."""
        self._observed, self._records = observed, records
        self._users = ReferenceUsers(reference.dealt(records), reference.shape, reference.classes)
        self._sound = all_updates(self._users, observed.releases, records)
        self.hypotheses: list[Hypothesis] = []
        self._means: list[Means] = []
        self.classes = reference.classes
        self._reference, self._spread = reference, self._sound[:0]
        self._drifts: list[Matrix] = [np.float32(SIZE_DRIFT) * self._sound.mean(0)]

    @property
    def size(self) -> float:
        """What users contribute, relative to reference users."""
        middle = self._sound.mean(0).astype(np.float64)
        return float(self._observed.value @ middle / (middle @ middle))

    def add(
        self,
        hypotheses: Sequence[Hypothesis],
        on_step: OnStep | None = None,
        *,
        drifts: bool = False,
    ) -> None:
        """Compute what faulty reference users would have released.

        Args:
            hypotheses: what to compute.
            on_step: told how far it is.
            drifts: whether the reference may differ a little from users in these ways.
        """
        for number, one in enumerate(hypotheses, start=1):
            mean = expected(self._users, one, self._observed.releases, self._records, self._sound)
            self.hypotheses.append(one)
            self._means.append(mean)
            if drifts:
                self._drifts += self._drift(one, mean)
            if on_step is not None:
                on_step(number, len(hypotheses))

    def observing(self, observed: Observed) -> Inquiry:
        """The same hypotheses about releases of the same tasks with other noise, clip alike."""
        made = copy(self)
        noises = zip(self._observed.releases, observed.releases, strict=True)
        factors = {float(old.deviation / new.deviation) for old, new in noises}
        if len(factors) != 1:
            raise ValueError("the noise of all releases must change by one factor")
        factor = np.float32(factors.pop())
        made._observed, made.hypotheses = observed, list(self.hypotheses)
        made._sound, made._spread = self._sound * factor, self._spread * factor
        made._means = [Means(one.one * factor, one.other * factor) for one in self._means]
        made._drifts = [row * factor for row in self._drifts]
        return made

    def _drift(self, one: Hypothesis, mean: Means) -> list[Matrix]:
        """How a reference without faults may differ by one standard deviation in this way."""
        change: Matrix = mean.middle - self._sound.mean(0)
        if one.fault.kind == "image":
            return [np.float32(FAULT_DRIFT) * change]
        if one.fault.name != "frequent_class":
            return []
        number = one.variant.chosen[0]
        before, after = (u.class_shares()[number] for u in (self._users, self._users.under(one)))
        if not before or after <= before:
            return []
        return [np.float32(CLASS_DRIFT / (after / before - 1)) * change]

    def model(self) -> LinearModel:
        """All hypotheses so far."""
        seen = self._observed
        if not len(self._spread):
            self._spread = self._apart()
        return linear_model(
            seen.value,
            self._sound,
            self._means,
            Drift(np.stack(self._drifts)),
            self._spread,
            seen.users,
            difference=seen.difference,
        )

    def _apart(self) -> Matrix:
        """How far users are from their mean, those of several deals together, [m, P]."""
        rows = [self._sound - self._sound.mean(0)]
        for deal in range(1, DEALS):
            data = self._reference.dealt(self._records, deal)
            users = ReferenceUsers(data, self._reference.shape, self.classes)
            found = all_updates(users, self._observed.releases, self._records)
            rows.append(found - found.mean(0))
        loss = 1 - 1 / len(self._sound)
        whole: Matrix = (np.concatenate(rows) / np.sqrt(loss)).astype(np.float32)
        return whole


def fitting_records(observed: Observed, reference: Reference) -> int:
    """How many records a user holds: as declared, or what fits the size of the release best."""
    declared = observed.releases[0].request.records_per_user
    most = min(max(RECORDS), len(reference.labels) // LEAST_USERS)
    if declared:
        if abs(_misfit(observed, reference, declared)) < FITTING:
            return declared
        most = min(most, declared)
    tried = [records for records in RECORDS if records <= most] or [1]
    return min(tried, key=lambda records: abs(_misfit(observed, reference, records)))


def _misfit(observed: Observed, reference: Reference, records: int) -> float:
    """Logarithm of what users contribute over what reference users of so many records do."""
    return float(np.log(max(1e-9, Inquiry(observed, reference, records).size)))
