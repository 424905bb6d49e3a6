"""Published figures to stand beside ours, each with its guarantee and where it was read."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlens.data.registry import spec_of
from fedlens_research.framework.errors import StudyError

DATA = ("mnist", "fashion-mnist")  # of which others publish figures
FILE = Path(__file__).with_name("published.toml")
NOTIONS = ("DP", "BDP", "none")
KINDS = ("best of three", "mean", "single")


@dataclass(frozen=True)
class PublishedFigure:
    """One figure that others report: a student trained on synthetic images, tested on real ones."""

    method: str
    data: str  # ``mnist`` or ``fashion-mnist``
    unit: str  # ``record`` or ``user``
    notion: str  # ``DP``, ``BDP`` (Bayesian differential privacy) or ``none``
    epsilon: float  # Infinite where there is no guarantee
    delta: float
    accuracy: float  # In percent, as published
    kind: str  # How it was picked: ``best of three`` classifiers, ``mean`` of runs, or ``single``
    source: str  # Where it was read
    url: str
    public_data: str  # Public images that the method learned from; empty for none

    @property
    def guarantee(self) -> str:
        """For people to read."""
        if self.notion == "none":
            return "none"
        delta = f"{self.delta:g}".replace("e-0", "e-")
        return f"({self.epsilon:g}, {delta})-{self.notion}"


def published_figures(path: Path = FILE) -> tuple[PublishedFigure, ...]:
    """All published figures, in the file's order.

    Raises:
        StudyError: an entry lacks something or holds something unknown; the message has its place.
    """
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    sources = tree.get("source", {})
    found: list[PublishedFigure] = []
    for place, entry in enumerate(tree.get("figure", ()), start=1):
        for name in DATA:
            if spec_of(name).published in entry:
                found.append(_one(f"{path.name}: figure {place}", entry, name, sources))
    return tuple(found)


def _one(
    where: str, entry: Mapping[str, Any], data: str, sources: Mapping[str, Any]
) -> PublishedFigure:
    try:
        source = sources[entry["source"]]
        usual = {"unit": "record", "notion": "DP", "public_data": ""}
        found = PublishedFigure(
            **{name: entry.get(name, value) for name, value in usual.items()},
            epsilon=float(entry.get("epsilon", math.inf)),
            delta=float(entry.get("delta", 1e-5)),
            accuracy=float(entry[spec_of(data).published]),
            **{name: entry[name] for name in ("method", "kind")},
            source=source["title"],
            url=source["url"],
            data=data,
        )
    except KeyError as error:
        raise StudyError(f"{where}: {error.args[0]!r} is missing") from None
    known = found.notion in NOTIONS and found.kind in KINDS and found.unit in ("record", "user")
    if not known or not 0 < found.accuracy < 100:
        raise StudyError(f"{where}: cannot be used: {found}")
    if found.notion != "none" and not (math.isfinite(found.epsilon) and 0 < found.delta < 1):
        raise StudyError(f"{where}: a guarantee needs a finite epsilon, and a delta in (0, 1)")
    return found
