"""What a mechanism releases where there is no record: its noise alone, again and again.

All rounds of the task, or some with the first and the last, are carried out in several lives of the
mechanism, as before and after a restart, on users who hold nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedlens.simulations.audits.records import silent_hosts
from fedlens.simulations.audits.stage import AuditedTask, AuditStage, Floats

RELEASES = 40
MOST_NUMBERS = 20
NODES = 2
Observer = Callable[[str, int, int], None]
"""Told what is measured, how many steps of it are done, and out of how many."""


@dataclass(frozen=True)
class Silence:
    """The noise of a task's releases, each over its claimed standard deviation."""

    sums: Floats
    """float64 [n, P]; in record mode, where the nodes add it, the nodes' own."""
    norms: Floats | None
    """Of the histogram of norms beside each sum, float64 [n, bins]: what was released less what
    nodes counted; None where no norms are released."""


def numbers_of(audited: AuditedTask) -> list[int]:
    """Numbers of the task's rounds: all, or some of them with the first and the last."""
    task = audited.schedule.task
    spread = np.linspace(task.first, task.last, min(MOST_NUMBERS, task.rounds))
    return sorted({round(float(number)) for number in spread})


def silent_releases(
    audited: AuditedTask, *, releases: int = RELEASES, observer: Observer | None = None
) -> Silence:
    """The noise of every release.

    Where nodes step weights it is that of all declared local steps together, from weights of zeros
    at rate 1.

    Args:
        audited: the task.
        releases: n at least.
        observer: told after each round.
    """
    silent, steps = audited.stepping(None).from_zeros(), audited.schedule.event.count
    if audited.schedule.config.aggregation.noise == "distributed":
        silent = silent.with_mechanism(sampling_rate=1.0)  # so that what is counted is known
    deviation = audited.schedule.noise_on_sums * math.sqrt(steps)
    rounds = numbers_of(audited)
    nodes = NODES if audited.schedule.record_mode else 1
    lives = max(2, math.ceil(releases / (len(rounds) * nodes)))
    rows: list[Floats] = []
    norms: list[Floats] = []
    for life in range(lives):
        stage = AuditStage(silent, silent_hosts(audited, NODES))
        for done, number in enumerate(rounds, start=1):
            rows += _noise(stage, number, record_mode=audited.schedule.record_mode)
            norms += _norms_noise(stage)
            if observer is not None:
                name = f"noise of {audited.schedule.name}"
                observer(name, life * len(rounds) + done, lives * len(rounds))
    counts = np.stack(norms) / audited.schedule.noise_on_norms if norms else None
    return Silence(np.stack(rows) / deviation, counts)


def _noise(stage: AuditStage, number: int, *, record_mode: bool) -> list[Floats]:
    if record_mode:
        stage.released(number)
        return list(stage.replies())
    return [stage.released(number)[0]]


def _norms_noise(stage: AuditStage) -> list[Floats]:
    """Noise of the last histogram; of users without records too nodes count norms, of 0."""
    return [] if stage.norms is None else [stage.norms - stage.counted()]


def shared_noise(rows: dict[str, Floats]) -> list[tuple[str, str, Floats, Floats]]:
    """The noise of each two tasks that come one after another, as far as both go."""
    found = []
    for (one, first), (two, second) in pairwise(rows.items()):
        size = min(first.shape[1], second.shape[1])
        found.append((one, two, first[:, :size], second[:, :size]))
    return found
