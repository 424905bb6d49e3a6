"""The audits of one task, the cheap and sharp ones first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.audit.finding import AuditKind, Finding
from fedlens.accountant.audit.noise import DOUBLE, SINGLE, noise_test
from fedlens.accountant.audit.norms import norms_test
from fedlens.accountant.audit.one_shot import expected_separation
from fedlens.accountant.audit.path_verdicts import (
    clipping_finding,
    lost_finding,
    noise_finding,
    sampling_finding,
)
from fedlens.accountant.audit.sampling import sampling_test
from fedlens.accountant.audit.verdicts import choose_guesses, one_run_finding, one_shot_finding
from fedlens.accountant.events import LEAST_NOISE
from fedlens.simulations.audits.canaries import OVERLONG, Canaries, Coins
from fedlens.simulations.audits.clips import clip_probe
from fedlens.simulations.audits.records import CanaryRecords
from fedlens.simulations.audits.schedule import Schedule
from fedlens.simulations.audits.silence import Observer, Silence, silent_releases
from fedlens.simulations.audits.stage import AuditedTask, AuditStage, Floats

if TYPE_CHECKING:
    from fedlens.simulations.audits.audit import AuditPlan

# Who took part in a round, and how: read from the sums themselves, next to no noise.
#
# The contributions of all units are known and independent, so a sum of some of them tells how
# many times each is in it. That must be 0 or 1 of the clipped contribution, by the fixed
# denominator, with the probability that is claimed.

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


# All rounds of a task with canaries that took part by a coin, and a score for each of them.

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


NODES = 2
_OF_RECORDS: tuple[AuditKind, ...] = ("sampling", "one-run")


def audit_task(
    schedule: Schedule,
    plan: AuditPlan,
    source: np.random.Generator,
    noise: dict[str, Floats],
    repeats: bool,
    observer: Observer | None,
) -> Iterator[Finding]:
    """All audits of one task that a plan asks for.

    Args:
        schedule: the task.
        plan: which audits, how thoroughly.
        source: of canaries and coins.
        noise: filled with the task's silent releases, by its name.
        repeats: whether fresh processes draw the same noise.
        observer: told of progress.
    """
    audited = AuditedTask.of(schedule)
    if plan.wants("clipping"):
        yield _clipping(audited, source)
    if plan.wants("noise"):
        found = silent_releases(audited, releases=plan.releases, observer=observer)
        noise[schedule.name] = found.sums
        yield _noise(audited, found, plan, repeats)
    if schedule.record_mode and plan.wants("sampling", "one-run"):
        yield from _records(audited, plan, source, observer)
    elif plan.wants("sampling", "one-run", "one-shot"):
        yield from _users(audited, plan, source, observer)


def _clipping(audited: AuditedTask, source: np.random.Generator) -> Finding:
    probe = clip_probe(audited, source)
    unit = "record" if audited.schedule.record_mode else "user"
    blocks = {f"its block {name!r}": norm for name, norm in probe.blocks}
    if probe.counted is not None:
        blocks["what is counted of a canary's norm"] = probe.counted
    return clipping_finding(
        {f"what the task makes of a {unit}": probe.computed, **blocks},
        sent=probe.sent,
        cosine=probe.cosine,
        taken=probe.taken,
        refused=probe.refused,
        claim=audited.schedule.stated,
    )


def _noise(audited: AuditedTask, found: Silence, plan: AuditPlan, repeats: bool) -> Finding:
    schedule = audited.schedule
    single = schedule.record_mode and audited.steps_on_nodes
    claim = schedule.stated
    return noise_finding(
        noise_test(found.sums, confidence=plan.confidence, resolution=SINGLE if single else DOUBLE),
        claim=claim,
        priced=lambda ratio: schedule.claim(claim.delta, ratio).epsilon,
        norms=None if found.norms is None else norms_test(found.norms, found.sums),
        restarts_repeat=repeats,
    )


def _users(
    audited: AuditedTask, plan: AuditPlan, source: np.random.Generator, observer: Observer | None
) -> Iterator[Finding]:
    if plan.wants("sampling"):
        yield _sampling(audited, drawn_users(audited, source, plan.drawn))
    if plan.wants("one-run", "one-shot"):
        found = user_run(audited, plan.canaries, source, observer)
        if plan.wants("one-run"):
            yield _one_run(audited.schedule, plan, found)
        if plan.wants("one-shot"):
            yield _one_shot(audited.schedule, plan, found)


def _records(
    audited: AuditedTask, plan: AuditPlan, source: np.random.Generator, observer: Observer | None
) -> Iterator[Finding]:
    canaries = CanaryRecords(audited, plan.records, NODES, source)
    if len(canaries.labels) < 2:
        for kind in _OF_RECORDS:
            if plan.wants(kind):
                yield lost_finding(kind, claim=audited.schedule.stated)
        return
    if plan.wants("sampling"):
        yield _sampling(audited, drawn_records(canaries))
    if plan.wants("one-run"):
        yield _one_run(audited.schedule, plan, record_run(canaries, source, observer))


def _sampling(audited: AuditedTask, found: Draws) -> Finding:
    rate = audited.schedule.event.sampling_rate
    whole = np.clip(np.rint(found.shares), 0, 1)
    return sampling_finding(
        sampling_test(found.drawn, rate, found.nodes),
        off=float(np.abs(found.shares - whole).max()),
        residual=found.residual,
        refused=found.refused,
        sampling_rate=rate,
        claim=audited.schedule.stated,
    )


def _one_run(schedule: Schedule, plan: AuditPlan, found: CanaryRun) -> Finding:
    count = len(found.scores)
    claim = schedule.stated_for(count)
    return one_run_finding(
        found.scores,
        found.included,
        guesses=choose_guesses(count, claim),
        claim=claim,
        confidence=plan.confidence,
    )


def _one_shot(schedule: Schedule, plan: AuditPlan, found: CanaryRun) -> Finding:
    event = schedule.event
    expected, most = (
        expected_separation(
            canaries=len(found.scores),
            dims=found.dims,
            sampling_rate=event.sampling_rate,
            noise_multiplier=noise,
            rounds=schedule.rounds,
        )
        for noise in (event.noise_multiplier, 0.0)
    )
    return one_shot_finding(
        found.scores,
        found.included,
        claim=schedule.stated,
        confidence=plan.confidence,
        expected=expected,
        most=most,
    )
