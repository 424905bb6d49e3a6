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

from torch import Tensor, nn

from client.datasets.attributes import load_private
from client.datasets.attributes.data import Split
from privatizers.export import one_thread
from privatizers.protocol import PrivatizerError
from studies.attackers import ATTACKERS, BLIND, FRESH
from studies.framework.errors import StudyError
from studies.framework.settings import as_mapping, check_names
from studies.framework.store import TrialStore, digest, write_json
from studies.framework.trials import Report
from studies.metrics.reading import released
from studies.tradeoff.charts import plot_examples, plot_leak, plot_sensitive
from studies.tradeoff.figures import Curve, CurvePoint
from studies.tradeoff.filter_files import load_filter, save_filter
from studies.tradeoff.measuring import FRESH_SEED, FilterFigures, FilterJudge, least_sum_of
from studies.tradeoff.operating_points import OperatingPoint, parse_operating_points
from studies.tradeoff.points import SERIES, Recipe, build_recipe, kind_of

VERSION = 2  # Of the kept files: raised when the same settings would measure another thing
MEASURED, FILTERS = "measured", "filters"
SHOWN = 10
QUICK_ATTACKERS = ("logistic", "same")
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

    @property
    def fresh(self) -> tuple[str, ...]:
        """The attackers that are fitted at every point."""
        return tuple(self.attackers or (QUICK_ATTACKERS if self.quick else FRESH))

    def limited(self, split: Split) -> Split:
        """The parts, as many records as are used."""
        attack = self.attack_records or (2000 if self.quick else 10_000)
        test = self.test_records or (1000 if self.quick else len(split.test))
        return Split(
            split.train, split.attack.take(slice(0, attack)), split.test.take(slice(0, test))
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
    splits = {plan.seeds[0]: _load(plan, plan.seeds[0])}
    first = splits[plan.seeds[0]]
    recipe = build_recipe(plan.method, first.train, quick=plan.quick, changes=plan.changes)
    own = recipe.quick_points if plan.quick else recipe.points
    points = parse_operating_points(plan.method, plan.points or own)
    plan.out.mkdir(parents=True, exist_ok=True)
    seeds = []
    for seed in plan.seeds:
        split = splits.get(seed) or _load(plan, seed)
        seeds.append(_Seed(plan, recipe, split, seed, tell).run(points))
    curve = Curve(
        method=plan.method,
        data=plan.data,
        quick=plan.quick,
        seeds=plan.seeds,
        raw=CurvePoint(None, [raw for raw, _ in seeds]),
        places=tuple(CurvePoint(one, [found[one] for _, found in seeds]) for one in points),
        least_sum=least_sum_of(first.train),
        series=kind_of(first.train) == SERIES,
        plots=tuple(str(plan.out / name) for name in ("secret.png", "leak.png", "examples.png")),
    )
    _draw(curve, plan, recipe, first)
    write_json(plan.out / "points.json", curve.rows())
    return curve


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
            provider = self.recipe.provide(self.split.train, self.seed)
            judge = self._judge(provider)
            if raw is None:
                raw = self._keep(None, judge.raw())
                self.tell(f"seed {self.seed}: raw records: utility {raw.utility:.3f}")
            if missing:
                found |= self._train(judge, provider, missing)
        return raw, {one: value for one, value in found.items() if value is not None}

    def _train(
        self, judge: FilterJudge, provider: nn.Module | None, missing: Sequence[OperatingPoint]
    ) -> dict[OperatingPoint, FilterFigures]:
        found, start = {}, time.perf_counter()
        for trained in self.recipe.train(self.split.train, provider, missing, self.seed):
            measured = judge.measure(trained)
            seconds = time.perf_counter() - start
            save_filter(trained.filter, self.split.train.shape, self.filter_path(trained.point))
            measured = dataclasses.replace(measured, seconds=seconds)
            found[trained.point] = self._keep(trained.point, measured)
            worst = max(measured.attacks.values(), key=lambda one: one.balanced)
            self.tell(
                f"seed {self.seed}: {trained.point.name}: utility {measured.utility:.3f}, "
                f"strongest attacker {worst.balanced:.3f}, {seconds:.0f} s"
            )
            start = time.perf_counter()
        return found

    def _judge(self, provider: nn.Module | None) -> FilterJudge:
        settings = self.recipe.settings
        steps = getattr(settings, "attacker_steps", 200 if self.plan.quick else 600)
        return FilterJudge(
            split=self.split,
            provider=provider,
            names=self.plan.fresh,
            reading_steps=getattr(settings, "reading_steps", 200 if self.plan.quick else 800),
            attacker_steps=steps,
            group=_protected(self.plan, self.seed, len(self.split.test)),
            seed=self.seed,
        )

    def filter_path(self, point: OperatingPoint) -> Path:
        """Where a filter is kept."""
        name = point.name.replace(" ", "-").replace("=", "-")
        short = digest(self._plan(point))[:8]
        return self.plan.out / FILTERS / f"{name}-seed-{self.seed}-{short}.safetensors"

    @property
    def _store(self) -> TrialStore:
        return TrialStore(self.plan.out / MEASURED)

    def _plan(self, point: OperatingPoint | None) -> dict[str, Any]:
        """All that the figures of a point, or of raw records, depend on."""
        plan = self.plan
        return {
            "version": VERSION,
            "method": plan.method,
            "data": plan.data,
            "seed": self.seed,
            "point": None if point is None else point.row(),
            "attackers": plan.fresh,
            "quick": plan.quick,
            "sizes": [len(part) for part in (self.split.train, self.split.attack, self.split.test)],
            "settings": as_mapping(self.recipe.settings),
        }

    def _kept(self, point: OperatingPoint | None) -> FilterFigures | None:
        """What was measured before; None where there is nothing whole, filter included."""
        found = self._store.find(self._plan(point))
        if found is None or (point is not None and not self.filter_path(point).exists()):
            return None
        return FilterFigures.read(found)

    def _keep(self, point: OperatingPoint | None, measured: FilterFigures) -> FilterFigures:
        self._store.keep(self._plan(point), measured.row())
        return measured


def _load(plan: CurvePlan, seed: int) -> Split:
    return plan.limited(load_private(plan.data, plan.data_dir, seed))


def _protected(plan: CurvePlan, seed: int, records: int) -> Tensor | None:
    """The protected attribute of the test records, where it is not the sensitive attribute."""
    if plan.data not in PROTECTED:
        return None
    return load_private(PROTECTED[plan.data], plan.data_dir, seed).test.sensitive[:records]


def _draw(curve: Curve, plan: CurvePlan, recipe: Recipe, split: Split) -> None:
    plot_sensitive(curve, plan.out / "secret.png")
    plot_leak(curve, plan.out / "leak.png")
    few = split.test.take(slice(0, SHOWN if kind_of(split.test) != "points" else 400))
    seed = plan.seeds[0]
    shown = {}
    for place in curve.places:
        if place.setting is not None:
            made = _Seed(plan, recipe, split, seed, lambda _: None)
            filter_, _ = load_filter(made.filter_path(place.setting))
            shown[place.setting.name] = released(filter_, few, FRESH_SEED + 2 * seed + 1)
    plot_examples(few, shown, plan.out / "examples.png")
