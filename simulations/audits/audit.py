"""All audits of a schedule, in one call: what to run, in which order, and what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.audit.finding import Finding
from accountant.audit.noise import DOUBLE, SINGLE, noise_test
from accountant.audit.one_shot import expected_separation
from accountant.audit.sampling import sampling_test
from accountant.audit.verdicts import (
    choose_guesses,
    clipping_finding,
    no_attack,
    noise_finding,
    one_run_finding,
    one_shot_finding,
    sampling_finding,
)
from client.datasets.registry import DatasetError
from server.config.tasks import WganConfig
from simulations.audits.members import membership_audit
from simulations.audits.probes import CanaryRun, Observer, canary_run, clip_probe, silent_releases
from simulations.audits.restarts import restarts_repeat
from simulations.audits.schedule import NothingToAudit, Schedule
from simulations.audits.silos import WHY_NO_CANARIES, silent_silos, silo_clip_probe

KINDS = ("all", "one-run", "one-shot", "noise", "membership")


@dataclass(frozen=True)
class AuditPlan:
    """What to audit, and how thoroughly."""

    kind: str = "all"
    """One of `KINDS`; the audits with canaries also test the clip and the sampler."""
    canaries: int = 1000
    """m."""
    dims: int = 20_000
    """d: length of a canary's update; well above m."""
    confidence: float = 0.95
    """Of the figures that are reported; alarms keep their own."""

    def __post_init__(self) -> None:
        """Check.

        Raises:
            NothingToAudit: numbers with which nothing could be measured.
        """
        if self.kind not in KINDS:
            raise NothingToAudit(f"kind = {self.kind!r}: choose one of {', '.join(KINDS)}")
        if self.canaries < 20 or self.dims < 2 * self.canaries:
            raise NothingToAudit(
                f"canaries = {self.canaries}, dims = {self.dims}: give 20 canaries at least, and "
                "twice as many dimensions"
            )
        if not 0.5 <= self.confidence < 1:
            raise NothingToAudit(f"confidence = {self.confidence:g}: give a number in [0.5, 1)")

    def wants(self, *kinds: str) -> bool:
        """Whether one of ``kinds`` is asked for."""
        return self.kind == "all" or self.kind in kinds


def run_audits(
    schedule: Schedule,
    plan: AuditPlan,
    *,
    source: np.random.Generator,
    samples: NDArray[np.uint8] | None = None,
    observer: Observer | None = None,
) -> Iterator[Finding]:
    """Carry the audits out, one finding after another.

    Args:
        schedule: what is audited.
        plan: which audits.
        source: of canaries, coins and splits; noise and cohorts have their own, real ones.
        samples: what the run released, uint8 [n, channels, height, width], for membership
            inference on the simulated users that it was trained on; None leaves that audit out.
        observer: told of progress.

    Raises:
        NothingToAudit: canaries were asked for in record mode.
    """
    if plan.wants("one-run", "one-shot") and not schedule.record_mode:
        yield from _with_canaries(schedule, plan, source, observer)
    elif plan.kind in ("one-run", "one-shot"):
        raise NothingToAudit(WHY_NO_CANARIES)
    elif plan.kind == "all":
        yield clipping_finding(silo_clip_probe(schedule), None, 0, claim=schedule.stated)
    if plan.wants("noise"):
        yield _of_noise(schedule, plan, observer)
    if plan.wants("membership") and samples is not None:
        if observer is not None:
            observer("membership", 0, 1)
        yield _of_members(schedule, plan, samples, source)


def _with_canaries(
    schedule: Schedule, plan: AuditPlan, source: np.random.Generator, observer: Observer | None
) -> Iterator[Finding]:
    claim = schedule.stated
    probe = clip_probe(schedule, dims=plan.dims, source=source)
    found = canary_run(
        schedule, canaries=plan.canaries, dims=plan.dims, source=source, observer=observer
    )
    norm_ratio, cosine, refused = probe
    yield clipping_finding(norm_ratio, cosine, refused + found.refused, claim=claim)
    rate = schedule.event.sampling_rate
    yield sampling_finding(sampling_test(found.draws, rate), sampling_rate=rate, claim=claim)
    if plan.wants("one-run"):
        yield _one_run(schedule, plan, found)
    if plan.wants("one-shot"):
        yield _one_shot(schedule, plan, found)


def _one_run(schedule: Schedule, plan: AuditPlan, found: CanaryRun) -> Finding:
    claim = schedule.stated_for(plan.canaries)
    return one_run_finding(
        found.scores,
        found.included,
        guesses=choose_guesses(plan.canaries, claim),
        claim=claim,
        confidence=plan.confidence,
    )


def _one_shot(schedule: Schedule, plan: AuditPlan, found: CanaryRun) -> Finding:
    event = schedule.event
    expected, most = (
        expected_separation(
            canaries=plan.canaries,
            dims=plan.dims,
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


def _of_noise(schedule: Schedule, plan: AuditPlan, observer: Observer | None) -> Finding:
    if schedule.record_mode:
        values = silent_silos(schedule, observer=observer)
        resolution = SINGLE if isinstance(schedule.task.settings, WganConfig) else DOUBLE
    else:
        values, resolution = silent_releases(schedule, observer=observer), DOUBLE
    claim = schedule.stated
    return noise_finding(
        noise_test(values, confidence=plan.confidence, resolution=resolution),
        claim=claim,
        priced=lambda ratio: schedule.claim(claim.delta, ratio).epsilon,
        restarts_repeat=restarts_repeat(),
    )


def _of_members(
    schedule: Schedule, plan: AuditPlan, samples: NDArray[np.uint8], source: np.random.Generator
) -> Finding:
    claim = schedule.stated  # where nothing can be said of the whole
    try:
        claim = schedule.whole_claim  # samples come from all parts together
        return membership_audit(
            schedule, samples, claim=claim, confidence=plan.confidence, source=source
        )
    except (NothingToAudit, DatasetError) as error:
        if plan.kind == "membership":
            raise
        return no_attack(str(error), claim=claim)
