"""Who took part in a round, and how: read from the sums themselves, next to no noise.

The contributions of all units are known and independent, so a sum of some of them tells how many
times each is in it. That must be 0 or 1 of the clipped contribution, by the fixed denominator, with
the probability that is claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.events import LEAST_NOISE
from fedlens.simulations.audits.canaries import OVERLONG, Canaries
from fedlens.simulations.audits.records import CanaryRecords
from fedlens.simulations.audits.stage import AuditedTask, AuditStage, Floats

USERS = 200
_WANTED = 300
_FEWEST, _MOST = 20, 60


@dataclass(frozen=True)
class Draws:
    """What units took part in, round by round."""

    shares: Floats
    """float64 [T, m]: how many times its clipped contribution each unit is in the sum."""
    nodes: NDArray[np.int64]
    """Where each unit is, int64 [m]."""
    residual: float
    """Largest norm of what is in a sum besides, over the clipping norm."""
    refused: int
    """Replies that the server refused."""

    @property
    def drawn(self) -> NDArray[np.bool_]:
        """Who took part at all, bool [T, m]."""
        found: NDArray[np.bool_] = self.shares > 0.5
        return found


def rounds_needed(units: int, rate: float) -> int:
    """Enough rounds to tell another rate; a few where everybody takes part anyway."""
    if rate >= 1:
        return 2
    return min(_MOST, max(_FEWEST, math.ceil(_WANTED / (units * rate))))


def drawn_users(audited: AuditedTask, source: np.random.Generator, users: int = USERS) -> Draws:
    """Rounds of canary users at the task's own sampling rate."""
    canaries = Canaries(audited, users, source, norm=OVERLONG)
    quiet = audited.with_mechanism(noise_multiplier=LEAST_NOISE)
    stage = canaries.stage(np.ones(canaries.count, dtype=np.bool_), quiet)
    return _decoded(audited, stage, canaries.units(), canaries.nodes())


def drawn_records(canaries: CanaryRecords) -> Draws:
    """Rounds of canary records at the task's own sampling rate."""
    everybody = np.ones(len(canaries.labels), dtype=np.bool_)
    stage = canaries.stage(everybody, canaries.quiet())
    return _decoded(canaries.audited, stage, canaries.alone, canaries.nodes)


def _decoded(
    audited: AuditedTask, stage: AuditStage, alone: Floats, nodes: NDArray[np.int64]
) -> Draws:
    """Repeat the task's first round: its public seeds stay, its secret draws do not."""
    rounds = rounds_needed(len(alone), audited.schedule.event.sampling_rate)
    released, refusals = zip(
        *(stage.released(audited.schedule.task.first) for _ in range(rounds)), strict=True
    )
    sums = np.stack(released)
    shares = np.linalg.solve(alone @ alone.T, alone @ sums.T).T
    besides = np.linalg.norm(sums - shares @ alone, axis=1)
    return Draws(shares, nodes, float(besides.max()), sum(refusals))
