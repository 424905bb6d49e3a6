"""What a diagnosis would find, before there is a run: each fault's smallest share of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from client.messages import TrainRequest
from client.tasks.settings import FrozenSettings
from foundation.errors import WrongUse
from server.config.tasks import FrozenConfig
from server.config.tree import Config
from server.diagnosis.diagnose import by_fault
from server.diagnosis.hypotheses import library
from server.diagnosis.inquiry import Inquiry, Observed, OnStep
from server.diagnosis.reference import Reference
from server.kept_releases import KeptRelease
from server.mechanism import mechanism, release_deviation
from server.schedule import scaled
from server.tasks.protocol import settings_of


@dataclass(frozen=True)
class PowerRow:
    """What one fault would need in one federation."""

    fault: str
    users: int
    epsilon: float
    """DP ε of the whole schedule."""
    share: float
    """Smallest share of the users at which nine of ten runs find it; infinite for never."""


def power_of(
    config: Config,
    reference: Reference,
    users: Sequence[int],
    epsilons: Sequence[float],
    on_step: OnStep | None = None,
) -> list[PowerRow]:
    """The smallest detectable shares, by the first frozen task of the schedule alone.

    Raises:
        WrongUse: there is no such task.
        ConfigError: an ε that cannot be met.
    """
    names = [name for name, task in config.planned.items() if isinstance(task, FrozenConfig)]
    if not names:
        raise WrongUse("the schedule has no task of kind 'frozen': a diagnosis could read nothing")
    inquiry: Inquiry | None = None
    rows: list[PowerRow] = []
    for count in users:
        for epsilon in epsilons:
            delta = min(config.privacy.delta, 1 / count)
            sized = config.updated({"data.users": count, "privacy.delta": delta})
            release = planned(scaled(sized, epsilon=epsilon, delta=delta), names[0], reference)
            seen = Observed((release,), release.request.mechanism.denominator)
            if inquiry is None:
                inquiry = Inquiry(seen, reference, release.request.records_per_user)
                inquiry.add(library(reference.shape, reference.classes), on_step, drifts=True)
                inquiry.model()
            model = inquiry.observing(seen).model()
            shares = by_fault(inquiry.hypotheses, model)
            rows += [PowerRow(name, count, epsilon, share) for name, share in shares.items()]
    return rows


def planned(config: Config, name: str, reference: Reference) -> KeptRelease:
    """A release as it will be kept, its values zeros."""
    task = config.planned[name]
    request = TrainRequest(
        round=1,
        users=(),
        enrolled=0,
        kind=task.kind,
        mechanism=mechanism(config, task),
        settings=settings_of(task, FrozenSettings).model_dump(),
        weights={},
        seed=0,
        key=b"",
        records_per_user=config.data.records_per_user,
    )
    deviation = release_deviation(config, task) / np.sqrt(task.rounds)
    nothing = np.zeros(1)  # stands for all coordinates
    return KeptRelease(name, nothing, deviation, request, reference.shape, reference.classes)
