"""What a run's releases say, task by task: the rounds of one task as a single sum.

Every round's release is a mean of clipped updates plus noise of its own. The sum over a task's
rounds has the sum of the expectations and of the variances, whatever the rounds built on: given
the public state that each was asked with, its noise is independent of all that came before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedlens.diagnosis.readers import READERS, compared
from fedlens.foundation.errors import WrongUse
from fedlens.server.round.releases import ArchivedRelease

Matrix = NDArray[np.float32]
SIZE_DRIFT = 0.05
"""Standard deviation of how much more a user contributes to a task than one of the reference, all
classes alike."""
GUESSED_DRIFT = 0.5
"""The same where a run is about one side of a private split: its share of the users is a guess."""
SAME_PEOPLE = 0.2
"""Of what users and a public reference may differ by without a fault, two runs of one federation's
people differ by so much."""


@dataclass(frozen=True)
class Evidence:
    """One task's releases."""

    rounds: tuple[ArchivedRelease, ...]
    """At least one, in their order."""

    @property
    def first(self) -> ArchivedRelease:
        """The first round, which says what is asked."""
        return self.rounds[0]

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each coordinate of the rounds' sum."""
        return float(np.sqrt(sum(one.deviation**2 for one in self.rounds)))

    @property
    def value(self) -> Matrix:
        """What of the rounds' sum is compared with a reference, over its noise, float32 [m]."""
        total = np.sum([one.release for one in self.rounds], axis=0)[compared(self.first)]
        found: Matrix = (total / self.deviation).astype(np.float32)
        return found

    @cached_property
    def digest(self) -> str:
        """Of all that was asked, and the noise: not of what was answered."""
        found = hashlib.sha256(repr(self.deviation).encode())
        for each in self.rounds:
            asked = each.request
            said = [asked.kind, dict(asked.settings), asked.mechanism.clipping_norm, each.shape]
            found.update(repr(said).encode())
            for name in sorted(asked.weights):
                found.update(name.encode())
                found.update(np.ascontiguousarray(asked.weights[name]).data)
        return found.hexdigest()


@dataclass(frozen=True)
class Observed:
    """All evidence that goes into one model."""

    evidence: tuple[Evidence, ...]
    users: float
    """Expected users behind a release: q N."""
    difference: bool = False
    """Whether it is how much more than an earlier run's it is."""
    guessed: bool = False
    """Whether how many users are behind it is a guess."""

    @property
    def people_drift(self) -> float:
        """Of what users and a public reference may differ by, what they may differ by here."""
        return SAME_PEOPLE if self.difference else 1.0

    @property
    def size_drift(self) -> float:
        """By how much users may contribute more than those that they are compared with."""
        return GUESSED_DRIFT if self.guessed else self.people_drift * SIZE_DRIFT

    @property
    def first(self) -> ArchivedRelease:
        """A release, of whose kind of data all are."""
        return self.evidence[0].first

    @property
    def value(self) -> Matrix:
        """All of it over its noise, float32 [sum of P]."""
        return np.concatenate([one.value for one in self.evidence])

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose releases these are."""
        return tuple(one.first.task for one in self.evidence)


def observed_of(
    releases: Sequence[ArchivedRelease], before: Sequence[ArchivedRelease] = ()
) -> Observed:
    """The releases that can be read, or how they differ from an earlier run's.

    Raises:
        WrongUse: there are none, or none that the earlier run has too.
    """
    read = [one for one in releases if one.request.kind in READERS]
    # where some records have labels, a release by class is of those alone, and who has them is
    # as private as what they show
    fewest = min((one.classes for one in read), default=0)
    read = [one for one in read if one.classes == fewest]
    if not read:
        raise WrongUse(
            "the run kept no release of a task of kind 'frozen' or 'card': train it with one, in "
            "user mode and without a privatizer"
        )
    if before:
        read = difference_of(read, before)
    tasks = dict.fromkeys(one.task for one in read)
    evidence = tuple(Evidence(tuple(one for one in read if one.task == task)) for task in tasks)
    users = min(one.request.mechanism.denominator for one in read)
    return Observed(evidence, users, difference=bool(before))


def difference_of(
    after: Sequence[ArchivedRelease], before: Sequence[ArchivedRelease]
) -> list[ArchivedRelease]:
    """Means over rounds of one run less those of an earlier one, where both asked the same.

    Raises:
        WrongUse: they asked nothing alike.
    """
    found: list[ArchivedRelease] = []
    for task in dict.fromkeys(one.task for one in after):
        own = [one for one in after if one.task == task]
        same = [one for one in before if _alike(own[0], one)]
        if not same:
            continue
        value = np.mean([one.release for one in own], axis=0)
        value = value - np.mean([one.release for one in same], axis=0)
        noise = float(np.hypot(_of_mean(own), _of_mean(same)))
        found.append(replace(own[0], release=value, deviation=noise))
    if not found:
        raise WrongUse(
            "the two runs share no task of kind 'frozen' with equal feature_seed and "
            "clipping_norm: take another run, or public data, as reference"
        )
    return found


def _of_mean(releases: Sequence[ArchivedRelease]) -> float:
    """Standard deviation of the noise in the mean of some rounds."""
    return float(np.sqrt(sum(one.deviation**2 for one in releases)) / len(releases))


def _alike(one: ArchivedRelease, other: ArchivedRelease) -> bool:
    same_clip = one.request.mechanism.clipping_norm == other.request.mechanism.clipping_norm
    return (
        one.request.kind == other.request.kind
        and not (one.request.weights or other.request.weights)
        and dict(one.request.settings) == dict(other.request.settings)
        and same_clip
        and (one.shape, one.classes) == (other.shape, other.classes)
        and one.request.records_per_user == other.request.records_per_user
    )
