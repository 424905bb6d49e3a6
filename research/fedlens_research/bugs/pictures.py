"""Pictures of the benchmark: rates against shares, and what samples of real runs look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedlens.simulations.plots.style import BLUE, GREEN, GREY, ORANGE
from fedlens_research.bugs.tallies import BugTally, binomial_interval
from fedlens_research.framework.charts import save

COLOURS = (ORANGE, BLUE, GREEN, GREY)
ACROSS = 4
ASIDE = 0.4
"""Points by which lines stand side by side, so that bars do not hide each other."""
Lines = Mapping[float, Sequence[BugTally]]
"""By ε, tallies of ascending shares."""


def plot_rates(panels: Mapping[str, Lines], path: Path) -> Path:
    """How often each fault is named first, against the share of users, a line for each ε.

    Bars are 95% binomial intervals.

    Args:
        panels: fault -> ε -> tallies.
        path: PNG file to write.
    """
    rows = -(-len(panels) // ACROSS)
    figure = Figure(figsize=(2.6 * ACROSS, 1.9 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, ACROSS, squeeze=False, sharex=True, sharey=True).ravel()
    epsilons = sorted({epsilon for lines in panels.values() for epsilon in lines})
    for axes, (name, lines) in zip(grid, panels.items(), strict=False):
        for epsilon, tallies in sorted(lines.items()):
            aside = ASIDE * (epsilons.index(epsilon) - (len(epsilons) - 1) / 2)
            shares = np.array([100 * one.share + aside for one in tallies])
            rates = np.array([one.first / one.draws for one in tallies])
            ends = np.array([binomial_interval(one.first, one.draws) for one in tallies])
            errors = np.abs(ends.T - rates)
            colour = COLOURS[epsilons.index(epsilon) % len(COLOURS)]
            label = f"ε = {epsilon:g}"
            axes.errorbar(
                shares, rates, errors, color=colour, marker="o", markersize=3, lw=1, label=label
            )
        axes.set_title(name, fontsize=8)
        axes.set_ylim(-0.03, 1.03)
        axes.tick_params(labelsize=7)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.legend(
        *grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=4, fontsize=7
    )
    figure.supxlabel("users with the fault (%)", fontsize=8)
    figure.supylabel("named first", fontsize=8)
    return save(figure, path)
