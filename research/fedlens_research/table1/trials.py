"""A trial of the table: one row at one guarantee with one seed, and the folder that keeps it.

``plan.json``       what is trained and measured
``run/``            the run's directory
``training.json``   what it spent and took; written when training is done
``trial.json``      what was measured; written last, whole or not at all
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fedlens.data.registry import spec_of
from fedlens.server.config.tree import Config, ConfigError
from fedlens_research.framework.store import digest, read_json, write_json
from fedlens_research.table1.evaluation import EvaluationBudget, serving
from fedlens_research.table1.guarantees import Guarantee
from fedlens_research.table1.rows import PRECISION, TableRow

DRAWN = ("release.agreement", "release.attempts")
"""Settings by which samples are drawn from what was trained."""
PLAN_FILE, TRAINED_FILE, MEASURED_FILE = "plan.json", "training.json", "trial.json"
Step = Literal["train", "measure"]
MEASURED = 3
"""How a trial is measured; raised when the way changes, so that kept trials are measured anew."""


@dataclass(frozen=True)
class TableTrial:
    """A row at a guarantee with a seed."""

    row: TableRow
    guarantee: Guarantee
    seed: int
    folder: Path

    @classmethod
    def of(cls, row: TableRow, guarantee: Guarantee, seed: int, out: Path) -> TableTrial:
        """The trial with its folder in a study's folder ``out``."""
        folder = out.absolute() / "trials" / row.name / str(guarantee) / f"seed-{seed}"
        return cls(row, guarantee, seed, folder)

    def __str__(self) -> str:
        """For people to read."""
        return f"{self.row.name} {self.guarantee} seed {self.seed}"

    @property
    def measured(self) -> dict[str, Any] | None:
        """What ``trial.json`` says, or None."""
        return read_json(self.folder / MEASURED_FILE)

    def missing(self, plan: dict[str, Any]) -> tuple[Step, ...]:
        """The steps that are still to be done for what ``plan`` says."""
        known = read_json(self.folder / PLAN_FILE)
        if known is None or not _serves(known, plan):
            return ("train", "measure")
        if not (self.folder / TRAINED_FILE).is_file():
            return ("train", "measure")
        found = self.measured
        return () if found is not None and found["measures"] in _enough(plan) else ("measure",)

    def begin(self, plan: dict[str, Any]) -> None:
        """Put the plan into the folder; a run of other settings is set aside, not deleted."""
        known = read_json(self.folder / PLAN_FILE)
        if known is not None and _serves(known, plan):
            trained = known["config"].get(PRECISION, "float32")
            plan = {**plan, "config": {**plan["config"], PRECISION: trained}}
        elif known is not None:
            self._set_aside()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "plan.json", plan)

    def _set_aside(self) -> None:
        number = 1
        while (target := self.folder.with_name(f"{self.folder.name}.old-{number}")).exists():
            number += 1
        self.folder.rename(target)


def plan_of(trial: TableTrial, config: Config, effort: EvaluationBudget) -> dict[str, Any]:
    """All that the steps need to know, and a digest of how it is measured."""
    row = trial.row
    curve = row.curve and str(trial.guarantee) not in row.guarantees[1:]
    own = {"data": row.data, "fault": row.fault, "provider": row.provider, "curve": curve}
    effort_on = effort.on(row.data).to_json()
    plan = {"name": str(trial), "config": config.flat(), "effort": effort_on, **own}
    return {**plan, "measures": _measures(plan)}


def _measures(plan: dict[str, Any]) -> str:
    """A digest of how much is measured, and in which way."""
    kept = {key: plan[key] for key in ("effort", "curve", "data")}
    drawn = {key: plan["config"][key] for key in DRAWN}
    # only students that learn from an annotator's labels see distorted images
    taught = {"distortion": asdict(spec_of(plan["data"]).distortion)} if _is_taught(plan) else {}
    return digest({**kept, **drawn, **taught, "way": MEASURED})


def _enough(plan: dict[str, Any]) -> list[str]:
    """Digests of what is asked for, or of more than that."""
    return [
        _measures({**plan, "effort": effort, "curve": curve})
        for effort in serving(plan["effort"], plan["data"])
        for curve in (plan["curve"], True)
    ]


def _is_taught(plan: dict[str, Any]) -> bool:
    """Whether students learn from an annotator's labels."""
    return any(k.endswith(".kind") and v == "annotator" for k, v in plan["config"].items())


def _trains(plan: dict[str, Any]) -> dict[str, Any]:
    """What of a plan decides the run that is trained.

    Where data and a pretrained filter lie does not, so a study may be moved. A setting that a kept
    plan does not have had its default. Nor does another filter of samples, which is measured
    again, but for a privatizer that is fitted on what is drawn.
    """
    try:
        settings: dict[str, Any] = dict(Config().updated(plan["config"]).flat())
    except ConfigError:  # of another version: it is trained anew
        settings = dict(plan["config"])
    settings |= {"data.dir": "", "privatizer.path": ""}
    if settings.get("privatizer.trained_by") != "samples":
        settings |= dict.fromkeys(DRAWN)
    return {"config": settings, "fault": plan["fault"], "provider": plan["provider"]}


def _serves(known: dict[str, Any], plan: dict[str, Any]) -> bool:
    """Whether what a kept plan trained is what ``plan`` would, or more exact."""
    there, asked = _trains(known), _trains(plan)
    if asked["config"][PRECISION] == "auto":
        there["config"][PRECISION] = "auto"
    return there == asked


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two plans train and measure in the same way, whatever their seeds.

    Numbers may differ a little: scaled noise is rounded up to seven digits, which may be the next
    ones on another machine.
    """
    if one["measures"] != other["measures"]:
        return False
    mine, theirs = _trains(one), _trains(other)
    first, second = mine.pop("config"), theirs.pop("config")
    return (
        mine == theirs
        and first.keys() == second.keys()
        and all(_close(first[key], second[key]) for key in first if key != "seed")
    )


def _close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other
