"""Plots of plans and of percentile curves, as PNG files; they need no screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from fedlens.accountant.planning import PlannedSchedule, WhatIf

if TYPE_CHECKING:
    from fedlens.accountant.bayesian.assessment import Assessment
    from fedlens.accountant.bayesian.percentiles import Percentile

_WIDTH, _HEIGHT, _DPI = 4.2, 3.6, 110
BLUE, GREEN, ORANGE, GREY = "#1f5fa8", "#2a8c6c", "#d1711b", "#777777"


def plot_what_if(
    plan: PlannedSchedule, what_if: Mapping[str, Sequence[WhatIf]], path: Path
) -> None:
    """ε against whatever a plan's tables vary, one panel each, both accountants in all of them.

    Args:
        plan: whose tables they are.
        what_if: of `fedlens.accountant.planning.tables`.
        path: PNG file to write.
    """
    figure = Figure(figsize=(_WIDTH * len(what_if), _HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(what_if), squeeze=False)[0]
    own = {
        "rounds": float(plan.rounds),
        "noise multiplier": plan.round.noise_multiplier,
        "users": float(plan.users or 0),
    }
    for axes, (name, lines) in zip(panels, what_if.items(), strict=True):
        _draw_what_if(axes, name, lines, own[name])
    figure.suptitle(f"What it costs at δ = {plan.delta:g} (marked: as planned)")
    _save(figure, path)


def _draw_what_if(axes: Axes, name: str, lines: Sequence[WhatIf], own: float) -> None:
    values = [line.value for line in lines]
    for label, style, colour, bounds in (
        ("moments accountant", "--", ORANGE, [line.cost.rdp for line in lines]),
        ("tight accountant", "-", BLUE, [line.cost.tight for line in lines]),
    ):
        shown = [b.epsilon if math.isfinite(b.epsilon) else math.nan for b in bounds]
        axes.plot(values, shown, style, marker=".", color=colour, label=label)
    axes.axvline(own, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xlabel=name, ylabel="ε", xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_locator(NullLocator())
    axes.legend(fontsize=8)


def plot_percentiles(assessment: Assessment, delta: float, path: Path) -> None:
    """The percentile curve: which ε holds for which share of users, beside what holds for all.

    Args:
        assessment: with the curve.
        delta: δ at which every figure is stated.
        path: PNG file to write.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(assessment.dp.epsilon, color=BLUE, linewidth=1.2, label="DP: anybody")
    for name, colour, average, curve in (
        ("sound", GREEN, assessment.sound, assessment.percentiles),
        ("corrected (estimate)", ORANGE, assessment.corrected, assessment.percentiles_corrected),
    ):
        _draw_curve(axes, curve, colour, f"BDP {name}: for most users")
        label = f"BDP {name}: on average over users"
        axes.axhline(average.epsilon, linestyle="--", color=colour, linewidth=0.9, label=label)
    axes.set(xlabel="share of users left out, p", ylabel=f"ε at δ = {delta:g}", xscale="log")
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    axes.set_title("ε for at least a share 1 - p of users; hollow: for all users", fontsize=10)
    axes.legend(fontsize=8)
    _save(figure, path)


def _draw_curve(axes: Axes, curve: Sequence[Percentile], colour: str, label: str) -> None:
    """A line through the meaningful points; hollow marks where less than one user is left out."""
    points = [p for p in curve if p.share < 1 and math.isfinite(p.bound.epsilon)]
    for meaningful, line, filled in ((True, "-", "full"), (False, "none", "none")):
        shown = [p for p in points if p.meaningful is meaningful]
        axes.plot(
            [1 - p.share for p in shown],
            [p.bound.epsilon for p in shown],
            linestyle=line,
            marker="o",
            markersize=4,
            fillstyle=filled,
            color=colour,
            label=label if meaningful else None,
        )


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
