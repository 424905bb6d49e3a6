"""The mutation suite of the audits: how often each fault is caught, and correct code accused.

    python -m harness.audit_power --repeats 20 --correct 200

Each repetition audits one task of one unit afresh, with new canaries, coins and noise. The subjects
of a fault take turns, so that each is audited about as often as the others, and so do the faults:
a suite that is stopped early has tried all of them about as often.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedlens.simulations.audits.audit import AuditPlan, restarts_repeat, run_audits
from fedlens.simulations.audits.schedule import Schedule
from harness.audit_mutants import MUTANTS, NOTHING, Mutant
from harness.audit_subjects import subjects, two_tasks

PLAN = AuditPlan(canaries=100, releases=20, drawn=40, records=30)
"""Small, so that hundreds of audits take minutes."""
Subjects = dict[str, list[Schedule]]


@dataclass
class MutantScore:
    """How audits of one mutant ended."""

    mutant: str
    audits: int = 0
    caught: int = 0
    by: Counter[str] = field(default_factory=Counter)
    """Which audit raised the first alarm."""
    missed: Counter[str] = field(default_factory=Counter)
    """Subjects of which it was not caught."""
    seconds: float = 0.0
    """Of all audits."""
    order: list[int] = field(init=False)
    """In which the subjects take turns: any, so that few audits are not all of the same ones."""

    def __post_init__(self) -> None:
        """Shuffle the subjects."""
        count = next(len(m.subjects) for m in (NOTHING, *MUTANTS) if m.name == self.mutant)
        self.order = np.random.default_rng().permutation(count).tolist()


def first_alarm(schedules: list[Schedule], mutant: Mutant, *, plan: AuditPlan = PLAN) -> str:
    """Audit once; the kind of the first audit that raised an alarm, or nothing."""
    with mutant.put_in(schedules[0]):
        for finding in run_audits(schedules, plan, source=np.random.default_rng()):
            if finding.verdict == "alarm":
                return finding.kind
    return ""


def score(mutant: Mutant, known: Subjects, repeats: int) -> MutantScore:
    """Audit a mutant again and again, its subjects in turn."""
    found = MutantScore(mutant.name)
    add_audits(found, mutant, known, repeats)
    return found


def add_audits(found: MutantScore, mutant: Mutant, known: Subjects, repeats: int) -> None:
    """Audit a mutant some more times, going on with the subject whose turn it is."""
    started = time.perf_counter()
    for _ in range(repeats):
        name = mutant.subjects[found.order[found.audits % len(mutant.subjects)]]
        kind = first_alarm(known[name], mutant)
        found.audits += 1
        found.caught += bool(kind)
        if kind:
            found.by[kind] += 1
        else:
            found.missed[name] += 1
    found.seconds += time.perf_counter() - started


def table(scores: list[MutantScore]) -> Table:
    """A row a mutant."""
    made = Table("fault", "tasks", "audits", "alarms", "first alarm by", "s an audit")
    tasks = {mutant.name: len(mutant.subjects) for mutant in (NOTHING, *MUTANTS)}
    for one in scores:
        by = ", ".join(f"{kind} {count}" for kind, count in one.by.most_common())
        cells = (
            tasks[one.mutant],
            one.audits,
            one.caught,
            by,
            f"{one.seconds / max(1, one.audits):.1f}",
        )
        made.add_row(one.mutant, *map(str, cells))
    return made


def markdown(scores: list[MutantScore]) -> str:
    """The same as a table of a page."""
    tasks = {mutant.name: len(mutant.subjects) for mutant in (NOTHING, *MUTANTS)}
    rows = [
        f"| {one.mutant} | {tasks[one.mutant]} | {one.audits} | {one.caught} | {by} |"
        for one in scores
        for by in [", ".join(one.by)]
    ]
    head = "| fault | tasks | audits | alarms | first alarm by |\n|---|---|---|---|---|"
    return "\n".join([head, *rows]) + "\n"


def main() -> None:
    """Run the suite, print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=20, help="audits of each fault")
    parser.add_argument("--correct", type=int, default=200, help="audits without a fault")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop then, with what is done")
    parser.add_argument("--only", default="", help="faults whose names hold this")
    parser.add_argument("--markdown", type=Path, help="write the table there too")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with _once_for_all():
        _suite(chosen)


@contextmanager
def _once_for_all() -> Iterator[None]:
    """What no audit of this process can change: how processes start."""
    repeated = restarts_repeat()
    with patch("fedlens.simulations.audits.audit.restarts_repeat", lambda: repeated):
        yield


def _suite(chosen: argparse.Namespace) -> None:
    """Go through all faults again and again: a suite that is stopped has tried each as often."""
    known, until = {**subjects(), **two_tasks()}, time.monotonic() + 60 * chosen.minutes
    mutants = [mutant for mutant in (NOTHING, *MUTANTS) if chosen.only in mutant.name]
    scores = [MutantScore(mutant.name) for mutant in mutants]
    for turn in range(1, chosen.repeats + 1):
        for mutant, one in zip(mutants, scores, strict=True):
            due = (
                1 if mutant is not NOTHING else chosen.correct * turn // chosen.repeats - one.audits
            )
            for _ in range(due):
                if time.monotonic() < until:
                    add_audits(one, mutant, known, 1)
        _say(scores, chosen.markdown)
    Console(width=120).print(table(scores))


def _say(scores: list[MutantScore], page: Path | None) -> None:
    for one in scores:
        line = {**vars(one), "by": dict(one.by), "missed": dict(one.missed)}
        sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    if page is not None:
        page.write_text(markdown(scores), encoding="utf-8")


if __name__ == "__main__":
    main()
