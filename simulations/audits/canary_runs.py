"""All rounds of a task with canaries that took part by a coin, and a score for each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlens.simulations.audits.canaries import OVERLONG, Canaries, Coins
from fedlens.simulations.audits.records import CanaryRecords
from fedlens.simulations.audits.silence import Observer
from fedlens.simulations.audits.stage import AuditedTask, Floats

Heard = Callable[[int], tuple[Floats, int]]
"""What comes of a round, and how many replies were refused."""


@dataclass(frozen=True)
class CanaryRun:
    """All rounds of a task with canaries."""

    scores: Floats
    """float64 [m]: how much of a canary's contribution is in the releases, all rounds together."""
    included: Coins
    """bool [m]: the coins, thrown before the first round."""
    refused: int
    """Replies that the server refused, and rounds without any usable one."""
    dims: int
    """P."""


def user_run(
    audited: AuditedTask,
    count: int,
    source: np.random.Generator,
    observer: Observer | None = None,
) -> CanaryRun:
    """Canary users, scored by the inner product of their direction with all releases.

    Args:
        audited: a task of a user-level run.
        count: m at most.
        source: of coins and directions.
        observer: told after each round.
    """
    canaries = Canaries(audited, count, source, norm=OVERLONG)
    included = source.random(canaries.count) < 0.5
    total, refused = _summed(audited, canaries.stage(included).released, observer)
    length = OVERLONG * audited.schedule.event.clipping_norm
    scores = canaries.raw.numpy() @ total.astype(np.float32) / length
    return CanaryRun(scores.astype(np.float64), included, refused, audited.size)


def record_run(
    canaries: CanaryRecords, source: np.random.Generator, observer: Observer | None = None
) -> CanaryRun:
    """Canary records, scored by their share in what their node replies, that of others removed.

    The server sees a node's replies, so what is claimed must hold for them.
    """
    audited, count = canaries.audited, len(canaries.labels)
    included = source.random(count) < 0.5
    stage, first = canaries.stage(included), audited.schedule.task.first

    def replied(number: int) -> tuple[Floats, int]:  # by the public seeds of the first round
        refused = stage.released(first)[1]
        return stage.replies(), refused

    total, refused = _summed(audited, replied, observer)
    scores = np.zeros(count)
    for node in np.unique(canaries.nodes):
        mine = canaries.nodes == node
        scores[mine] = np.linalg.lstsq(canaries.alone[mine].T, total[node], rcond=1e-3)[0]
    return CanaryRun(scores, included, refused, audited.size)


def _summed(audited: AuditedTask, heard: Heard, observer: Observer | None) -> tuple[Floats, int]:
    """What is heard over all rounds, added up; a round without a usable reply adds nothing."""
    schedule = audited.schedule
    total: Floats = np.zeros(())
    refused = 0
    for done in range(1, schedule.rounds + 1):
        found, wrong = heard(schedule.task.first + done - 1)
        total, refused = total + found, refused + wrong
        if observer is not None:
            observer(f"canaries of {schedule.name}", done, schedule.rounds)
    return total, refused
