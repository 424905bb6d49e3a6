"""The whole report: train every point at every seed, attack it afresh, sum up, draw.

What was measured is kept a file each, so a report that was stopped goes on where it was. A file
counts only for exactly the settings that it was made with.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fedlens.data.attributes import load_private
from fedlens.data.attributes.options import without_path
from fedlens.privatizers.attacks.attack_runs import released
from fedlens.privatizers.attacks.attackers import ATTACKERS, BLIND, FRESH, INFORMED, STRONG
from fedlens.privatizers.attacks.claims import BARE, ONE, TEN, Claims
from fedlens.privatizers.attacks.controls import TRUE_USE
from fedlens.privatizers.attacks.filter_attack import FULL, QUICK
from fedlens.privatizers.attacks.filter_files import RecordUnits, load_filter, save_filter
from fedlens.privatizers.attacks.gate import claims_of
from fedlens.privatizers.export import one_thread
from fedlens.privatizers.private_data import Split
from fedlens.privatizers.protocol import PrivatizerError
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.settings import as_mapping, check_names
from fedlens_research.framework.store import TrialStore, digest, write_json
from fedlens_research.framework.trials import Report
from fedlens_research.tradeoff.charts import plot_examples, plot_leak, plot_sensitive
from fedlens_research.tradeoff.figures import Curve, CurvePoint
from fedlens_research.tradeoff.measuring import (
    FRESH_SEED,
    FilterFigures,
    FilterJudge,
    least_sum_of,
)
from fedlens_research.tradeoff.points import (
    POINTS,
    SERIES,
    CurveJob,
    OperatingPoint,
    Recipe,
    build_recipe,
    kind_of,
    parse_operating_points,
)

VERSION = 6  # Of the kept files: raised when the same settings would measure another thing
MEASURED, FILTERS = "measured", "filters"
SHOWN = 10
EVERY = (*INFORMED, *STRONG, *FRESH)
SEES = (ONE, TEN, BARE)
"""What the reader of a code sees of each record."""
QUICK_ATTACKERS = ("code", "logistic", "same")
PROTECTED = {
    "mnist-greater5": "mnist-thickness",
    "embedded-mnist-greater5": "embedded-mnist-thickness",
}
"""Sources whose attribute tells the utility, so that no group has both: the protected one is the
sensitive attribute of another source of the same test records."""


@dataclass(frozen=True)
class CurvePlan:
    """What is reported.

    Raises:
        PrivatizerError: there is no seed, or an attacker that looks at no record.
    """

    method: str  # ``information``, ``cloak`` or ``alpha``
    data: str  # the source's name
    out: Path  # folder of everything that is made
    seeds: tuple[int, ...] = (0,)  # of data, training and attackers
    points: tuple[str, ...] = ()  # places as written; none takes the method's own
    attackers: tuple[str, ...] = ()  # by name; none takes all fresh ones (of a quick report two)
    quick: bool = False  # fewer steps, smaller networks, fewer records
    data_dir: Path | None = None  # folder of data files
    # settings of the recipe that differ
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # that attackers are fitted on at most; None for 10,000 (quick: 2,000)
    attack_records: int | None = None
    # that everything is scored on at most; None for all (quick: 1,000)
    test_records: int | None = None

    def __post_init__(self) -> None:
        if not self.seeds:
            raise PrivatizerError("seeds: give at least one")
        for name in self.attackers:
            if name in BLIND:
                raise StudyError(f"attackers: {name!r} is a line of reference, always there")
        check_names("attackers", self.fresh, ATTACKERS)
        if set(self.fresh) <= set(INFORMED):
            raise StudyError(
                f"attackers: {', '.join(self.fresh)} need a filter that shows its code, and raw "
                "records have none; name one that reads releases too, such as logistic"
            )

    @property
    def fresh(self) -> tuple[str, ...]:
        """The attackers that are fitted at every point."""
        return tuple(self.attackers or (QUICK_ATTACKERS if self.quick else EVERY))

    def load(self, seed: int) -> Split:
        """The parts, as many records as are used."""
        split = load_private(self.data, self.data_dir, seed)
        attack = self.attack_records or (2000 if self.quick else 10_000)
        test = self.test_records or (1000 if self.quick else len(split.test))
        return dataclasses.replace(
            split,
            attack=split.attack.take(slice(0, attack)),
            test=split.test.take(slice(0, test)),
        )


def run_curve(plan: CurvePlan, tell: Report = lambda _: None) -> Curve:
    """Make the report; figures and plots are in ``plan.out`` when it returns.

    On one thread: small networks gain nothing from more, and equal arguments give equal figures.

    Raises:
        PrivatizerError: the method, a point or the settings cannot be used.
        PrivateDataError: the data cannot.
    """
    with one_thread():
        return _report(plan, tell)


def _report(plan: CurvePlan, tell: Report) -> Curve:
    first = plan.load(plan.seeds[0])
    for note in first.notes:
        tell(f"{without_path(plan.data)}: {note}")
    recipe = build_recipe(plan.method, first.train, quick=plan.quick, changes=plan.changes)
    own = recipe.quick_points if plan.quick else recipe.points
    points = parse_operating_points(plan.method, plan.points or own)
    plan.out.mkdir(parents=True, exist_ok=True)
    every = [
        _Seed(
            plan, recipe, first if seed == plan.seeds[0] else plan.load(seed), seed, _by(seed, tell)
        )
        for seed in plan.seeds
    ]
    seeds = [one.run(points) for one in every]
    curve = Curve(
        **{name: getattr(plan, name) for name in ("method", "quick", "seeds")},
        data=without_path(plan.data),
        raw=CurvePoint(None, [raw for raw, _ in seeds]),
        places=tuple(CurvePoint(one, [found[one] for _, found in seeds]) for one in points),
        least_sum=least_sum_of(first.train),
        series=kind_of(first.train) == SERIES,
        plots=tuple(str(plan.out / name) for name in ("secret.png", "leak.png", "examples.png")),
    )
    _draw(curve, every[0])
    write_json(plan.out / "points.json", curve.rows())
    return curve


def _by(seed: int, tell: Report) -> Report:
    """The same, with the seed before each line."""
    return lambda line: tell(f"seed {seed}: {line}")


@dataclass(frozen=True, eq=False)
class _Seed:
    """One seed's part of a report."""

    plan: CurvePlan
    recipe: Recipe
    split: Split
    seed: int
    tell: Report

    def run(
        self, points: Sequence[OperatingPoint]
    ) -> tuple[FilterFigures, dict[OperatingPoint, FilterFigures]]:
        """Figures of raw records and of every point; those kept before are read."""
        raw, found = self._kept(None), {one: self._kept(one) for one in points}
        missing = [one for one in points if found[one] is None]
        if raw is None or missing:
            self.tell("the network that the service reads raw records with ...")
            provider = self.recipe.provider(self.recipe.settings, self.split.train, self.seed)
            judge = self._judge(provider)
            if raw is None:
                raw = self._keep(None, judge.raw())
                self.tell(f"raw records: utility {raw.utility:.3f}")
            if missing:
                found |= self._train(judge, provider, missing, raw)
        return raw, {one: value for one, value in found.items() if value is not None}

    def _train(
        self,
        judge: FilterJudge,
        provider: nn.Module | None,
        missing: Sequence[OperatingPoint],
        raw: FilterFigures,
    ) -> dict[OperatingPoint, FilterFigures]:
        found, start = {}, time.perf_counter()
        settings, train = self.recipe.settings, self.split.train
        job = CurveJob(settings, train, provider, missing, self.seed, self._trained)
        self.tell("a filter is trained ...")
        for trained in self.recipe.filters(job):
            measured = judge.measure(trained)
            seconds = time.perf_counter() - start
            path = self.filter_path(trained.point)
            claims = self._claims(trained.filter, measured, raw)
            save_filter(trained.filter, train.shape, path, RecordUnits.of(train), claims)
            measured = dataclasses.replace(measured, seconds=seconds)
            found[trained.point] = self._keep(trained.point, measured)
            self.tell(
                f"{trained.point.name}: utility {measured.utility:.3f}, "
                f"strongest attacker {measured.reads()[ONE]:.3f}, {seconds:.0f} s"
            )
            start = time.perf_counter()
        return found

    def _trained(self, done: int, total: int) -> None:
        """Tells each tenth of a filter's training."""
        if 10 * done // total > 10 * (done - 1) // total:
            self.tell(f"trained {done} of {total} steps")

    def _claims(
        self, filter_: nn.Module, found: FilterFigures, raw: FilterFigures
    ) -> Claims | None:
        """What was measured; a quick report has attackers too weak to claim anything by."""
        if self.plan.quick:
            return None
        alone = raw.controls.get(TRUE_USE, {}).get("secret")
        use = max(found.utility, found.utility if found.fresh is None else found.fresh)
        return claims_of(filter_, self.split.test, found.reads(), alone, use, self.seed)

    def _judge(self, provider: nn.Module | None) -> FilterJudge:
        plan, settings, group = self.plan, self.recipe.settings, None
        if plan.data in PROTECTED:
            other = load_private(PROTECTED[plan.data], plan.data_dir, self.seed)
            group = other.test.sensitive[: len(self.split.test)]
        reading = getattr(settings, "reading_steps", 200 if plan.quick else 800)
        attacking = getattr(settings, "attacker_steps", 200 if plan.quick else 600)
        effort = QUICK if plan.quick else FULL
        more = self.seed, effort, (SEES[:1] if plan.quick else SEES), self.tell
        return FilterJudge(self.split, provider, plan.fresh, reading, attacking, group, *more)

    def filter_path(self, point: OperatingPoint) -> Path:
        """Where a filter is kept."""
        name = point.name.replace(" ", "-").replace("=", "-")
        short = digest(self._plan(point))[:8]
        return self.plan.out / FILTERS / f"{name}-seed-{self.seed}-{short}.safetensors"

    def _plan(self, point: OperatingPoint | None) -> dict[str, Any]:
        """All that the figures of a point, or of raw records, depend on."""
        plan, split = self.plan, self.split
        known = {"method": plan.method, "data": plan.data, "attackers": plan.fresh}
        return {
            **known,
            "version": VERSION,
            "quick": plan.quick,
            "seed": self.seed,
            "point": None if point is None else point.row(),
            "sizes": [len(part) for part in (split.train, split.attack, split.test)],
            "records": [part.digest() for part in (split.train, split.attack, split.test)],
            "settings": as_mapping(self.recipe.settings),
        }

    def _kept(self, point: OperatingPoint | None) -> FilterFigures | None:
        """What was measured before; None where there is nothing whole, filter included."""
        found = TrialStore(self.plan.out / MEASURED).find(self._plan(point))
        if found is None or (point is not None and not self.filter_path(point).exists()):
            return None
        return FilterFigures.read(found)

    def _keep(self, point: OperatingPoint | None, measured: FilterFigures) -> FilterFigures:
        TrialStore(self.plan.out / MEASURED).keep(self._plan(point), measured.row())
        return measured


def _draw(curve: Curve, made: _Seed) -> None:
    out, test = made.plan.out, made.split.test
    plot_sensitive(curve, out / "secret.png")
    plot_leak(curve, out / "leak.png")
    few = test.take(slice(0, SHOWN if kind_of(test) != POINTS else 400))
    noise = FRESH_SEED + 2 * made.seed + 1
    settings = [place.setting for place in curve.places if place.setting is not None]
    kept = {one.name: load_filter(made.filter_path(one))[0] for one in settings}
    shown = {name: released(filter_, few, noise) for name, filter_ in kept.items()}
    plot_examples(few, shown, out / "examples.png")
