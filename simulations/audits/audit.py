"""All audits of a run's tasks, in one call: what to run, in which order, and what was found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.audit.finding import Finding
from fedlens.accountant.audit.noise import Values, between_releases
from fedlens.accountant.audit.path_verdicts import shared_noise_finding
from fedlens.accountant.audit.verdicts import Claim, no_attack
from fedlens.data.registry import DatasetError
from fedlens.simulations.audits.members import membership_audit
from fedlens.simulations.audits.schedule import NothingToAudit, Schedule
from fedlens.simulations.audits.silence import Observer, shared_noise
from fedlens.simulations.audits.stage import Floats
from fedlens.simulations.audits.task_audit import audit_task

# Does the source of noise start anew in a new process, or from where it started last time?

DRAWS = 8
_PROGRAM = (
    "from fedlens.accountant.noise import gaussian, private_source; "
    f"print(gaussian({DRAWS}, noise_multiplier=1.0, sensitivity=1.0, "
    "source=private_source(-1, 1, 3)).tobytes().hex())"
)


def restarts_repeat(lives: int = 3) -> bool:
    """Whether two of ``lives`` fresh processes draw any noise alike for the same round."""
    drawn = [draw_once() for _ in range(lives)]
    return len(set().union(*drawn)) < lives * DRAWS


def draw_once() -> set[float]:
    """The first noise of a fresh process.

    Raises:
        OSError: the process could not be run.
    """
    done = subprocess.run(  # noqa: S603 - this interpreter, a constant program
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"a process to draw noise in ended with status {done.returncode}")
    return set(_floats(done.stdout.strip()).tolist())


def _floats(text: str) -> Values:
    return np.frombuffer(bytes.fromhex(text), dtype=np.float64)


KINDS = ("all", "clipping", "sampling", "one-run", "one-shot", "noise", "membership")


@dataclass(frozen=True)
class AuditPlan:
    """What to audit, and how thoroughly."""

    kind: str = "all"
    """One of `KINDS`."""
    canaries: int = 1000
    """m, of users; fewer where a task's updates are too short or too long for as many."""
    confidence: float = 0.95
    """Of the figures that are reported; alarms keep their own."""
    releases: int = 40
    """Silent rounds that a task's noise is read from."""
    drawn: int = 200
    """Canary users whose draws are read from sums."""
    records: int = 100
    """Canary records, over two nodes."""

    def __post_init__(self) -> None:
        """Check.

        Raises:
            NothingToAudit: numbers with which nothing could be measured.
        """
        if self.kind not in KINDS:
            raise NothingToAudit(f"kind = {self.kind!r}: choose one of {', '.join(KINDS)}")
        if self.canaries < 20:
            raise NothingToAudit(f"canaries = {self.canaries}: give 20 canaries at least")
        for name in ("releases", "drawn", "records"):
            if (value := getattr(self, name)) < 10:
                raise NothingToAudit(f"{name} = {value}: give 10 at least")
        if not 0.5 <= self.confidence < 1:
            raise NothingToAudit(f"confidence = {self.confidence:g}: give a number in [0.5, 1)")

    def wants(self, *kinds: str) -> bool:
        """Whether one of ``kinds`` is asked for."""
        return self.kind == "all" or self.kind in kinds


def run_audits(
    schedules: Sequence[Schedule],
    plan: AuditPlan,
    *,
    source: np.random.Generator,
    samples: NDArray[np.uint8] | None = None,
    observer: Observer | None = None,
) -> Iterator[Finding]:
    """Carry the audits out, one finding after another.

    Args:
        schedules: the tasks of one run that are audited.
        plan: which audits.
        source: of canaries, coins and splits; noise and cohorts have their own, real ones.
        samples: what the run released, uint8 [n, channels, height, width], for membership
            inference on the simulated users that it was trained on; None leaves that audit out.
        observer: told of progress.
    """
    noise: dict[str, Floats] = {}
    repeats = plan.wants("noise") and restarts_repeat()
    for schedule in schedules:
        for finding in audit_task(schedule, plan, source, noise, repeats, observer):
            yield replace(finding, task=schedule.name)
    yield from _between_tasks(schedules, noise)
    if plan.wants("membership") and samples is not None:
        if observer is not None:
            observer("membership", 0, 1)
        yield _of_members(schedules[-1], plan, samples, source)


def _between_tasks(schedules: Sequence[Schedule], noise: dict[str, Floats]) -> Iterator[Finding]:
    """What the noise of one task has in common with that of the next."""
    for one, two, first, second in shared_noise(noise):
        chance = between_releases(first, second)
        yield shared_noise_finding(chance, (one, two), claim=_whole(schedules[-1]))


def _whole(schedule: Schedule) -> Claim:
    """The claim of the run; of the task where the run as a whole claims nothing."""
    try:
        return schedule.whole_claim
    except NothingToAudit:
        return schedule.stated


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
