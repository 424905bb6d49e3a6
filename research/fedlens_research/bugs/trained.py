"""Really trained runs, and four ways of looking at them: the eye twice, released sums, a probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedlens.models.faults.planting import parse_faults
from fedlens.store import Purpose
from fedlens_research.bugs.faithful import JudgedRun, judged, judges_of
from fedlens_research.bugs.measuring import method
from fedlens_research.framework.settings import ONE_WAY
from fedlens_research.framework.store import TrialStore
from fedlens_research.framework.trials import Report

SHARE = 0.3
TRAINED = ("rotate90", "tilt", "stuck_column")
"""Faults of really trained runs."""
UNDOES = {
    "rotate90": "better_after:rotate270",
    "tilt": "better_after:tilt:amount=-20",
    "stuck_column": "unchanged:stuck_column",
}
"""The probe that confirms each planted fault."""
PROBE_EPSILON, PROBE_DELTA = 0.3, 1e-6
CALIBRATION, SOUND = "sound-0", "sound-1"
"""The run that the judge's errors are measured on, and the one that shows false alarms."""
FOLDER, KEPT = "runs", "trained"


@dataclass(frozen=True)
class Product:
    """The product's own functions, as its users call them."""

    simulate: Callable[..., Any]
    diagnose: Callable[..., Any]
    probe: Callable[..., Any]
    open_run: Callable[[Path], Any]


@dataclass(frozen=True)
class PlannedRun:
    """One run of preset demo."""

    name: str
    fault: str
    seed: int


@dataclass(frozen=True)
class LookedAt:
    """What one way of looking says of one run about one fault."""

    run: str
    fault: str
    share: float
    """Of the run's users that have the fault."""
    how: str
    said: float | None
    """The share that it says; None where it says nothing."""
    low: float | None
    high: float | None
    epsilon: float
    """DP ε of the run, and of what was asked beside it."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def planned_runs(faults: Sequence[str]) -> list[PlannedRun]:
    """Two sound runs and one with each fault, each with users and noise of its own."""
    found = [PlannedRun(CALIBRATION, "", 0), PlannedRun(SOUND, "", 1)]
    return found + [
        PlannedRun(name, f"{name}:{SHARE}", 2 + number) for number, name in enumerate(faults)
    ]


def look_at_all(
    faults: Sequence[str], product: Product, out: Path, report: Report
) -> list[LookedAt]:
    """Train what is missing, look at every run in every way; what was looked at is kept."""
    store = TrialStore(out / KEPT)
    runs = {one.name: one for one in planned_runs(faults)}
    for one in runs.values():
        trained(one, product, out, report)
    found: list[LookedAt] = []
    for fault in faults:
        for name in (SOUND, fault):
            plan = {"trained": name, "fault": fault, "seed": runs[name].seed, "method": method()}
            kept = store.find(plan)
            if kept is None:
                report(f"looking at run {name} for {fault}")
                looked = _looked(product, out / FOLDER, name, fault)
                kept = {"looked": [one.to_json() for one in looked]}
                store.keep(plan, kept)
            found += [LookedAt(**one) for one in kept["looked"]]
    return found


def kept_looks(faults: Sequence[str], out: Path) -> list[LookedAt]:
    """What was looked at before."""
    store, found = TrialStore(out / KEPT), []
    for fault in faults:
        for one in planned_runs(faults):
            plan = {
                "trained": one.name,
                "fault": fault,
                "seed": one.seed,
                "method": method(),
            }
            kept = store.find(plan)
            found += [LookedAt(**look) for look in kept["looked"]] if kept else []
    return found


def trained(one: PlannedRun, product: Product, out: Path, report: Report) -> Path:
    """The run's directory, trained if it is not there."""
    path = out / FOLDER / one.name
    if not (path / "summary.json").is_file():
        report(f"training run {one.name}")
        settings = {**ONE_WAY, "seed": one.seed, **({"data.fault": one.fault} if one.fault else {})}
        product.simulate("demo", out=path, settings=settings, student=False, overwrite=True)
    return path


def _looked(product: Product, folder: Path, name: str, fault: str) -> list[LookedAt]:
    path = folder / name
    true = SHARE if name == fault else 0.0
    epsilon = float(product.open_run(path).summary.epsilon["dp"])
    found = []
    for purpose in ("curated", "faithful"):
        found.append(_by_eye(folder, name, fault, true, purpose, epsilon))
    for how, reference in (("sums", None), ("sums, earlier run", folder / CALIBRATION)):
        said = product.diagnose(path, reference=reference)
        own = next((one for one in said.findings if one.fault == fault), None)
        named = ", ".join(one.fault for one in said.findings)
        note = f"named: {named}" if named else "named nothing"
        note = note if said.reference.fits else "nothing claimed"
        share, low, high = (
            None if own is None else getattr(own, end) for end in ("share", "low", "high")
        )
        found.append(LookedAt(name, fault, true, how, share, low, high, epsilon, note))
    answer = product.probe(path, UNDOES[fault], epsilon=PROBE_EPSILON, delta=PROBE_DELTA)
    found.append(
        LookedAt(
            name,
            fault,
            true,
            "probe",
            answer.value,
            answer.low,
            answer.high,
            answer.together,
            UNDOES[fault],
        )
    )
    return found


def _by_eye(
    folder: Path, name: str, fault: str, true: float, purpose: Purpose, epsilon: float
) -> LookedAt:
    """A network that knows real sound and faulty images of each class, as the best eye there is."""
    run, clean = JudgedRun(str(folder / name)), JudgedRun(str(folder / CALIBRATION))
    (planted,) = parse_faults(f"{fault}:{SHARE}")
    judge = judges_of(run, planted)[-1]
    said = judged(judge, run, clean, planted, purpose)
    wide = 1.96 * said.error
    how = f"eye, {purpose}"
    note = f"calls {said.called:.1%} faulty, of sound samples {said.falsely:.1%}"
    return LookedAt(
        name, fault, true, how, said.share, said.share - wide, said.share + wide, epsilon, note
    )
