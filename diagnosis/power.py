"""What a diagnosis would find, before there is a run: each fault's smallest share of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedlens.diagnosis.diagnose import by_fault
from fedlens.diagnosis.evidence import observed_of
from fedlens.diagnosis.hypotheses import library
from fedlens.diagnosis.inquiry import Inquiry, OnStep
from fedlens.diagnosis.readers import READERS
from fedlens.diagnosis.reference import Reference
from fedlens.diagnosis.stand_ins import planned
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.mechanism import denominator, release_deviation
from fedlens.server.config.schedule import scaled
from fedlens.server.config.tree import Config


@dataclass(frozen=True)
class PowerRow:
    """What one fault would need in one federation."""

    fault: str
    users: int
    epsilon: float
    """DP ε of the whole schedule."""
    share: float
    """Smallest share of the users, on a split's side of those on it, at which nine of ten runs find
    it; infinite for never."""


def power_of(
    config: Config,
    reference: Reference,
    users: Sequence[int],
    epsilons: Sequence[float],
    on_step: OnStep | None = None,
) -> list[PowerRow]:
    """The smallest detectable shares, by all tasks of the schedule whose releases can be read.

    On a side of a private split a release is of the users that are guessed to be on it, and how
    much they contribute is as uncertain as the guess, as in a diagnosis.

    Raises:
        WrongUse: there is no such task.
        ConfigError: an ε that cannot be met.
    """
    if not any(task.kind in READERS for task in config.planned.values()):
        raise WrongUse("the schedule has no task of kind 'frozen': a diagnosis could read nothing")
    inquiry: Inquiry | None = None
    rows: list[PowerRow] = []
    for count in users:
        for epsilon in epsilons:
            delta = min(config.privacy.delta, 1 / count)
            sized = config.updated({"data.users": count, "privacy.delta": delta})
            sized = scaled(sized, epsilon=epsilon, delta=delta)
            noise = _noise(sized)
            if inquiry is None:
                observed, first = observed_of(planned(sized, _every_other(reference, 0))), noise
                observed = replace(observed, guessed=config.split.active)
                records = observed.first.request.records_per_user
                hypotheses = library(reference.shape, reference.classes)
                inquiry = Inquiry(
                    observed, _every_other(reference, 1), records, hypotheses, on_step
                )
            model = inquiry.with_users(_behind(sized), noise / first)
            shares = by_fault(inquiry, model)
            rows += [PowerRow(name, count, epsilon, share) for name, share in shares.items()]
    return rows


def _behind(config: Config) -> float:
    """Expected users behind a release: q N, times the share guessed of a split's side."""
    return min(
        denominator(config, task) for task in config.planned.values() if task.kind in READERS
    )


def _every_other(reference: Reference, first: int) -> Reference:
    """Half of the images: what states are made of must not be what is then expected of them."""
    images, labels = reference.images[first::2], reference.labels[first::2]
    return replace(reference, images=images, labels=labels)


def _noise(config: Config) -> float:
    """Deviation of the first task's release; all tasks' change by one factor with it."""
    task = next(task for task in config.planned.values() if task.kind in READERS)
    return release_deviation(config, task)
