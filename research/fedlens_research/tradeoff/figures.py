"""Points of a curve over seeds: means, deviations, and the JSON objects that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedlens.foundation.tables import Row
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.formula import FORMULA
from fedlens.privatizers.attacks.attackers.protocol import RELEASE, knowledge_of
from fedlens.privatizers.attacks.claims import ONE
from fedlens.privatizers.attacks.controls import ANSWER
from fedlens_research.framework.figures import SeedFigure
from fedlens_research.tradeoff.certified import Certified
from fedlens_research.tradeoff.measuring import (
    POSITION,
    PRIOR,
    SIDE,
    AttackFigures,
    FilterFigures,
    seen_by,
)
from fedlens_research.tradeoff.points import OperatingPoint

LABEL = "simulation only: trained and measured on raw data"
BLIND = (PRIOR, SIDE, POSITION)
ACCURACY, CLOSENESS = "accuracy", "1 - normalised squared error"


@dataclass(frozen=True)
class CurvePoint:
    """One place of a curve, or raw records, with what each seed measured there."""

    setting: OperatingPoint | None  # what was turned; None for raw records
    # one's figures each, in the order of the curve's seeds; at least one
    seeds: Sequence[FilterFigures]

    def figure(self, of: Callable[[FilterFigures], float | None]) -> SeedFigure | None:
        """A figure over seeds; None where a seed lacks it."""
        values = [value for value in map(of, self.seeds) if value is not None]
        return SeedFigure.of(values) if len(values) == len(self.seeds) else None

    def mean(self, of: Callable[[FilterFigures], float | None]) -> float | None:
        """The mean over seeds; None where a seed lacks it."""
        found = self.figure(of)
        return None if found is None else found.mean

    @property
    def attackers(self) -> tuple[str, ...]:
        """By name, in the order measured."""
        return tuple(self.seeds[0].attacks)

    @property
    def looking(self) -> tuple[str, ...]:
        """Those that look at the record, as it is released once."""
        names = self.attackers
        return tuple(name for name in names if name not in BLIND and seen_by(name) == ONE)

    def attack(self, name: str, part: str) -> float | None:
        """Mean over seeds of a part of an attack.

        Of an interval's ends too: the test records are the same or alike at each seed, so their
        share of the uncertainty does not shrink with more seeds.
        """
        return self.mean(lambda one: getattr(one.attacks[name], part))

    @property
    def strongest(self) -> str:
        """The attacker with the best mean, of those that look at the record."""
        return max(self.looking, key=lambda name: self.attack(name, "balanced") or 0.0)

    @property
    def leak(self) -> float:
        """The most that an attacker proves of I(S;Q), nats; 0 where none proves anything."""
        return max([0.0, *(self.attack(name, "leak") or 0.0 for name in self.looking)])

    @property
    def fairness(self) -> dict[str, float]:
        """Means over seeds; empty where undefined."""
        first = self.seeds[0].fairness
        if any(set(one.fairness) != set(first) for one in self.seeds):
            return {}
        return {
            name: sum(one.fairness[name] for one in self.seeds) / len(self.seeds) for name in first
        }

    @property
    def certified_for_any(self) -> bool:
        """Whether what is certified is so for any records."""
        return all(one.certified_for_any for one in self.seeds)

    def sensitive(self, names: Sequence[str] | None = None) -> dict[str, dict[str, float | None]]:
        """Each attacker's figures: ``mean`` and ``std`` are of balanced accuracy."""
        return {
            name: _attack_row(self, name) for name in (self.attackers if names is None else names)
        }


@dataclass(frozen=True)
class Curve:
    """A whole curve."""

    method: str  # by name
    data: str  # the source's name, without where it lies
    quick: bool  # fewer steps and smaller networks than the study's own
    seeds: tuple[int, ...]  # of what was trained
    raw: CurvePoint  # raw records, and the lines of reference
    places: tuple[CurvePoint, ...]  # the trained ones, in order
    least_sum: float | None  # K, nats; None where it cannot be computed
    series: bool  # the record is its own utility
    plots: tuple[str, ...] = field(default=())  # names of files in the curve's folder

    @property
    def measure(self) -> str:
        """What the utility is."""
        return CLOSENESS if self.series else ACCURACY

    def rows(self) -> list[dict[str, Any]]:
        """A JSON object for each point."""
        return [self._row(place) for place in self.places]

    def table(self) -> list[Row]:
        """Lines of the printed table: raw, what is sent without a filter, then each point."""
        return [
            _line(self.raw),
            *(_control_line(sent, self.control(sent)) for sent in self.controls),
            *({**_line(place), "dominated": _yes(self.dominates(place))} for place in self.places),
        ]

    @property
    def controls(self) -> list[str]:
        """What can be sent in place of a filtered record, in words."""
        return list(self.raw.seeds[0].controls)

    def control(self, sent: str) -> dict[str, float | None]:
        """Means over seeds of what it tells: ``secret`` with its interval, ``use``."""
        parts = ("secret", "low", "high", "use")
        return {part: self.raw.mean(lambda one, part=part: one.controls[sent][part])  # type: ignore[misc]
                for part in parts}  # fmt: skip

    def dominates(self, place: CurvePoint) -> bool:
        """Whether the answer alone keeps as much of the use as a filter, and tells no more."""
        if ANSWER not in self.controls:
            return False
        answer, best = self.control(ANSWER), place.attack(place.strongest, "balanced")
        uses = [place.mean(lambda one: one.utility), place.mean(lambda one: one.fresh)]
        use, secret = answer["use"], answer["secret"]
        if use is None or secret is None or best is None:
            return False
        return use >= max(found for found in uses if found is not None) and secret <= best

    def references(self) -> dict[str, Any]:
        """What is read from raw records, and by who sees none."""
        blind = [name for name in BLIND if name in self.raw.attackers]
        return {"raw": self.raw.sensitive(self.raw.looking), **self.raw.sensitive(blind)}

    def _row(self, place: CurvePoint) -> dict[str, Any]:
        utility = place.figure(lambda one: one.utility)
        fresh = place.figure(lambda one: one.fresh)
        return {
            "method": self.method,
            "data": self.data,
            **({} if place.setting is None else place.setting.row()),
            "seeds": list(self.seeds),
            "quick": self.quick,
            "utility": None if utility is None else utility.mean,
            "utility_std": None if utility is None else utility.deviation,
            "utility_measure": self.measure,
            "utility_raw": self.raw.mean(lambda one: one.utility),
            "utility_fresh": fresh and {"mean": fresh.mean, "std": fresh.deviation},
            "sensitive": place.sensitive(),
            "strongest": place.strongest,
            "knows": {name: words_of(name) for name in place.attackers},
            "leak_at_least_nats": place.leak,
            "reference": self.references(),
            "without_filter": {sent: self.control(sent) for sent in self.controls},
            "dominated": self.dominates(place),
            "bound_K_nats": self.least_sum,
            "certified": Certified(
                place.mean(lambda one: one.certified),
                for_any=place.certified_for_any,
            ).row(),
            "fairness": {"before": self.raw.fairness or None, "after": place.fairness or None},
            "latency_ms_p50": place.mean(lambda one: one.latency),
            "seconds": sum(one.seconds for one in place.seeds),
            "plots": list(self.plots),
            "label": LABEL,
        }


def words_of(name: str) -> str:
    """What the attacker of a column knows, by its declaration; ``code, ten alike`` is ``code``."""
    first = name.partition(" x")[0].partition(", ")[0]
    if first in BLIND:
        return "no record"
    if first == FORMULA:
        return f"{RELEASE.words}, the attribute's formula"
    return (knowledge_of(ATTACKERS[first]()) if first in ATTACKERS else RELEASE).words


def columns_of(curve: Curve) -> list[str]:
    """The printed table's columns."""
    names = [name for place in (*curve.places, curve.raw) for name in place.attackers]
    attackers = [name for name in dict.fromkeys(names) if name not in BLIND]
    fixed = ["strongest_frozen", "leak_at_least", "certified_nats", "unfairness", "ms", "seconds"]
    dominated = ["dominated"] if ANSWER in curve.controls else []
    return ["point", "utility", "fresh", "strongest", *dominated, *attackers, *fixed]


def _yes(found: bool) -> str:
    return "yes" if found else "no"


def _control_line(sent: str, found: Mapping[str, float | None]) -> Row:
    secret, use = found["secret"], found["use"]
    return {
        "point": sent,
        "utility": None if use is None else f"{use:.3f}",
        "strongest": None if secret is None else f"{secret:.3f}",
    }


def _line(place: CurvePoint) -> Row:
    line: Row = {"point": "raw" if place.setting is None else place.setting.name}
    line["utility"] = _shown(place.figure(lambda one: one.utility))
    line["fresh"] = _shown(place.figure(lambda one: one.fresh))
    best = place.strongest
    line["strongest"] = f"{place.attack(best, 'balanced') or 0.0:.3f} {best}"
    for name in place.attackers:
        line[name] = _shown(place.figure(lambda one, name=name: one.attacks[name].balanced))  # type: ignore[misc]
    frozen = [place.attack(name, "frozen") for name in place.looking]
    known = [value for value in frozen if value is not None]
    line["strongest_frozen"] = max(known) if known else None
    line["leak_at_least"] = place.leak
    if place.setting is not None:
        bound = place.mean(lambda one: one.certified)
        line["certified_nats"] = "none" if bound is None else bound
        line["ms"] = place.mean(lambda one: one.latency)
        line["seconds"] = sum(one.seconds for one in place.seeds)
    line["unfairness"] = place.fairness.get("equalized_odds_worst")
    return line


def _attack_row(place: CurvePoint, name: str) -> dict[str, float | None]:
    balanced = place.figure(lambda one: one.attacks[name].balanced) or SeedFigure.of([0.0])
    parts = [part for part in AttackFigures.__dataclass_fields__ if part != "balanced"]
    found = {part: place.attack(name, part) for part in parts}
    return {"mean": balanced.mean, "std": balanced.deviation, **found}


def _shown(figure: SeedFigure | None) -> str | None:
    if figure is None:
        return None
    spread = f" ± {figure.deviation:.3f}" if figure.deviation else ""
    return f"{figure.mean:.3f}{spread}"
