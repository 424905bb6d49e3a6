"""Trials carried out: each is kept once it is done, and never done again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import fedlens.diagnosis
import fedlens.models.faults
from fedlens.diagnosis.expected import Matrix
from fedlens.diagnosis.threads import one_thread_each
from fedlens.foundation.json_values import json_value
from fedlens_research.bugs import drawing
from fedlens_research.bugs.outsiders import planted
from fedlens_research.bugs.plan import BugTrial
from fedlens_research.bugs.tallies import BugTally, tallied
from fedlens_research.bugs.worlds import BugWorld, group_of
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.store import TrialStore, digest
from fedlens_research.framework.trials import Report

Progress = Callable[[str, int, int], None]
"""Told what is measured, how many trials are done, and how many there are."""


@dataclass(frozen=True)
class MeasuredBug:
    """A trial that is done."""

    trial: BugTrial
    tallies: tuple[BugTally, ...]
    """One for each share."""
    predicted: float | None
    """The smallest share that the diagnosis says it would find; None where it says never."""
    visible: float | None
    """The share below which no reader of these sums could find it; None where nothing is known."""
    reference_images: int

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        cells = [tally.to_json() for tally in self.tallies]
        return {
            "trial": asdict(self.trial),
            "predicted": self.predicted,
            "visible": self.visible,
            "cells": cells,
            "reference_images": self.reference_images,
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> MeasuredBug:
        """From what `to_json` made."""
        trial = BugTrial(**{**kept["trial"], "shares": tuple(kept["trial"]["shares"])})
        cells = tuple(BugTally.from_json(cell) for cell in kept["cells"])
        return cls(trial, cells, kept["predicted"], kept["visible"], kept["reference_images"])


@lru_cache(maxsize=1)
def method() -> str:
    """A digest of the code that is measured: another method's trials are no trials of this one."""
    folders = (fedlens.diagnosis.__path__[0], fedlens.models.faults.__path__[0])
    files = [path for folder in folders for path in sorted(Path(folder).glob("*.py"))]
    found = hashlib.sha256()
    for path in [*files, Path(str(drawing.__file__))]:
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def plan_of(trial: BugTrial) -> dict[str, Any]:
    """What a trial's result depends on."""
    return {**asdict(trial), "method": method()}


def kept_trials(trials: Sequence[BugTrial], store: TrialStore) -> Iterator[MeasuredBug]:
    """Those that are done."""
    for trial in trials:
        if (kept := store.find(plan_of(trial))) is not None:
            yield MeasuredBug.from_json(kept)


def measure_all(
    trials: Sequence[BugTrial],
    store: TrialStore,
    data_dir: str,
    report: Report,
    progress: Progress | None = None,
) -> None:
    """Carry out what is missing; trials of one world share what it computes."""
    done = 0
    with one_thread_each():
        for _, some in groupby(trials, key=lambda trial: trial.world):
            group = list(some)
            missing = [trial for trial in group if store.find(plan_of(trial)) is None]
            done += len(group) - len(missing)
            for found in _of_world(missing, data_dir, report) if missing else ():
                store.keep(plan_of(found.trial), found.to_json())
                done += 1
                if progress is not None:
                    progress("faults", done, len(trials))


def _of_world(missing: Sequence[BugTrial], data_dir: str, report: Report) -> Iterator[MeasuredBug]:
    """Trials of one world, one after another; none where there are too few images for it."""
    report(_said(missing[0]))
    try:
        world = BugWorld(missing, data_dir)
    except StudyError as error:
        report(f"left out: {error}")
        return
    for fault in dict.fromkeys(trial.fault for trial in missing):
        faulty = world.faulty(fault)
        for trial in (one for one in missing if one.fault == fault):
            yield _measured(trial, world, faulty, data_dir)


def _said(trial: BugTrial) -> str:
    extra = f", reference {trial.reference}" if trial.reference else ""
    return f"{trial.question}: {trial.data}, seed {trial.seed}{extra}"


def _measured(trial: BugTrial, world: BugWorld, faulty: Matrix, data_dir: str) -> MeasuredBug:
    stream = int(digest(asdict(trial)), 16)  # the same draws for another method
    name = planted(trial.fault, data_dir).fault.name if trial.fault else ""
    tallies = []
    for number, share in enumerate(trial.shares):
        seeds = np.random.SeedSequence([stream, number]).generate_state(trial.draws, np.uint64)
        said = world.drawn(trial, faulty, share, [int(seed) for seed in seeds])
        group = group_of(trial.data)
        true = round(share * trial.users / group) * group / trial.users
        tallies.append(tallied(name, true, said))
    predicted = world.smallest_detectable(trial).get(trial.fault)
    shown = json_value(predicted) if predicted is not None and predicted <= 1 else None
    visible = world.least_visible(trial) if trial.fault else None
    bound = json_value(visible) if visible is not None else None
    return MeasuredBug(trial, tuple(tallies), shown, bound, world.reference_images)
