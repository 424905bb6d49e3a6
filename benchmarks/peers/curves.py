"""Users a second against cohort and population."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.peers import apple
from benchmarks.peers.flower import flower_round
from benchmarks.peers.ours import our_round
from benchmarks.peers.turns import Round, take_turns
from benchmarks.peers.work import SIZES

COHORTS, POPULATIONS = (16, 64, 128), (1_000, 30_000, 1_000_000)
TURNS, OURS = 1, "fedlens, columns"
COLOURS = {"fedlens": "#1f5fa8", "pfl": "#d1711b", "Flower": "#777777"}
Curves = Mapping[str, Mapping[str, Mapping[int, float]]]


def curves(grid: Any, cohort: int, tell: Callable[[str], None]) -> Curves:
    """Users a second by way, of the large critic: by cohort, and ours by population as well."""
    large = SIZES["large"]
    by_cohort: dict[str, dict[int, float]] = {}
    for count in COHORTS:
        ways: dict[str, Round] = {"fedlens": our_round(OURS, large, count)}
        if apple.is_there():
            ways["pfl"] = apple.apple_round(large, count)
        if count <= cohort:  # more SuperNodes than that take Flower's simulation minutes
            ways["Flower"] = flower_round(grid, "large", count)
        found = take_turns(ways, frozenset({"Flower"}), count, TURNS, tell)
        for name, cost in found.items():
            by_cohort.setdefault(name, {})[count] = cost.users_a_second
    by_population: dict[str, dict[int, float]] = {}
    for population in POPULATIONS:
        ways = {"fedlens": our_round(OURS, large, 64, population)}
        for name, cost in take_turns(ways, frozenset(), 64, TURNS, tell).items():
            by_population.setdefault(name, {})[population] = cost.users_a_second
    return {"cohort": by_cohort, "population": by_population}


def plot_curves(found: Curves, path: Path) -> None:
    """Draw both; a PNG file."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, kind in ((left, "cohort"), (right, "population")):
        for name, line in found[kind].items():
            axes.plot(list(line), list(line.values()), "o-", color=COLOURS[name], label=name)
        axes.set_xscale("log")
        places = sorted({place for line in found[kind].values() for place in line})
        axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.minorticks_off()
        axes.set_ylim(0, 1.15 * max(max(line.values()) for line in found["cohort"].values()))
        axes.grid(alpha=0.3)
    left.set(xlabel="users of a round", ylabel="users a second, one core")
    right.set(xlabel="users enrolled, 64 of them in a round")
    left.legend(fontsize=8)
    figure.savefig(path, dpi=110)
