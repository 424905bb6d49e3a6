"""How well the bounds of verdicts do on data sets that they were not chosen on.

    python -m fedlens_research.worth.bounds research/results/worth.csv

leaves out one data set after the other, chooses the bounds on the others (of signal, below which
runs are *noise*, and of fidelity, from which they are *clear*), and counts their mistakes on the
one that was left out, beside those of the bounds in use.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fedlens.cli.output import say
from fedlens.store.worth import CLEAR_FROM, NOISE_BELOW
from fedlens_research.worth.study import GOOD_SHOWN, NOISE_SHOWN


@dataclass(frozen=True)
class JudgedRun:
    """What a run said of itself, and what its samples show beyond chance."""

    data: str
    signal: float
    fidelity: float
    shown: float

    @property
    def is_good(self) -> bool:
        """Whether most of its samples show what was asked for."""
        return self.shown >= GOOD_SHOWN


@dataclass(frozen=True)
class Mistakes:
    """Runs that a bound is wrong about: noise that it takes and good ones that it refuses."""

    taken: int = 0
    noise: int = 0
    refused: int = 0
    good: int = 0

    def __add__(self, other: Mistakes) -> Mistakes:
        return Mistakes(
            self.taken + other.taken,
            self.noise + other.noise,
            self.refused + other.refused,
            self.good + other.good,
        )

    @property
    def rate(self) -> float:
        """Sum of both shares."""
        return self.taken / max(1, self.noise) + self.refused / max(1, self.good)


def mistakes_of(bound: float, runs: Sequence[JudgedRun]) -> Mistakes:
    """Those of a bound."""
    noise = [run for run in runs if run.shown < NOISE_SHOWN]
    good = [run for run in runs if run.is_good]
    return Mistakes(
        sum(run.signal >= bound for run in noise),
        len(noise),
        sum(run.signal < bound for run in good),
        len(good),
    )


def best_bound(runs: Sequence[JudgedRun]) -> float:
    """The bound of the fewest mistakes, between two runs' signals: of several the middle one."""
    signals = sorted({run.signal for run in runs})
    between = [(one + other) / 2 for one, other in pairwise(signals)]
    rates = {bound: mistakes_of(bound, runs).rate for bound in between}
    best = [bound for bound, rate in rates.items() if rate == min(rates.values())]
    return best[len(best) // 2]


def left_out_one_by_one(runs: Sequence[JudgedRun]) -> tuple[Mistakes, list[float]]:
    """Mistakes on each data set of the bound that the others choose, and these bounds."""
    found, bounds = Mistakes(), []
    for name in sorted({run.data for run in runs}):
        bounds.append(best_bound([run for run in runs if run.data != name]))
        found += mistakes_of(bounds[-1], [run for run in runs if run.data == name])
    return found, bounds


def clear_bound(runs: Sequence[JudgedRun]) -> float:
    """The least bound of fidelity at which no run that is not good is *clear*.

    It lies in the middle between the highest of these and the next.
    """
    highest = max(run.fidelity for run in runs if not run.is_good)
    above = [run.fidelity for run in runs if run.fidelity > highest]
    return (highest + min(above, default=1)) / 2


def called_clear(bound: float, runs: Sequence[JudgedRun]) -> tuple[int, int]:
    """Of how many runs it says so: good ones, and others."""
    clear = [r for r in runs if r.signal >= NOISE_BELOW and r.fidelity >= bound]
    good = sum(run.is_good for run in clear)
    return good, len(clear) - good


def clear_by_others(runs: Sequence[JudgedRun]) -> tuple[tuple[int, int], list[float]]:
    """`called_clear` of each data set by the bound that the others choose, and these bounds."""
    bounds, good, wrong = [], 0, 0
    for name in sorted({run.data for run in runs}):
        bounds.append(clear_bound([run for run in runs if run.data != name]))
        found = called_clear(bounds[-1], [run for run in runs if run.data == name])
        good, wrong = good + found[0], wrong + found[1]
    return (good, wrong), bounds


_FIGURES = "signal", "fidelity", "beyond_chance"


def read_runs(path: Path) -> list[JudgedRun]:
    """Rows of a table of runs."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            JudgedRun(row["data"], *(float(row[figure]) for figure in _FIGURES))
            for row in csv.DictReader(file)
        ]


def main(paths: Sequence[Path]) -> None:
    """Print all of it."""
    runs = [run for path in paths for run in read_runs(path)]
    anew, bounds = left_out_one_by_one(runs)
    for what, found in (
        (f"bound {NOISE_BELOW:g}, which is in use", mistakes_of(NOISE_BELOW, runs)),
        (f"bounds {min(bounds):.2f} to {max(bounds):.2f}, chosen on other data", anew),
    ):
        say(
            f"{what}: {found.taken} of {found.noise} that are noise called something else, "
            f"{found.refused} of {found.good} good ones called noise"
        )
    good = sum(run.is_good for run in runs)
    by_others, bounds = clear_by_others(runs)
    for what, (right, wrong) in (
        (f"bound {CLEAR_FROM:g}, which is in use", called_clear(CLEAR_FROM, runs)),
        (f"bounds {min(bounds):.2f} to {max(bounds):.2f}, chosen on other data", by_others),
    ):
        say(
            f"{what}: {right} of {good} good ones called clear, "
            f"and {wrong} of {len(runs) - good} others"
        )


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])
