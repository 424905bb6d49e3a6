"""The audits of one task, the cheap and sharp ones first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

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
from fedlens.simulations.audits.canary_runs import CanaryRun, record_run, user_run
from fedlens.simulations.audits.clips import clip_probe
from fedlens.simulations.audits.draws import Draws, drawn_records, drawn_users
from fedlens.simulations.audits.records import CanaryRecords
from fedlens.simulations.audits.schedule import Schedule
from fedlens.simulations.audits.silence import Observer, Silence, silent_releases
from fedlens.simulations.audits.stage import AuditedTask, Floats

if TYPE_CHECKING:
    from fedlens.simulations.audits.audit import AuditPlan

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
