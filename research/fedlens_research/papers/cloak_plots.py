"""Curves of study ``cloak``: utility and attack against what is suppressed and what is sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlens.foundation.tables import Row, number
from fedlens.simulations.plots.style import BLUE, GREEN, GREY, ORANGE
from fedlens_research.framework.charts import save

UTILITY = (
    ("white", "trained", "accuracy", BLUE, "trained"),
    ("white", "mean", "accuracy", GREEN, "mean"),
    ("white", "zeros", "accuracy", ORANGE, "zeros"),
    ("white", "noise", "accuracy", GREY, "noise"),
    ("black", "trained", "accuracy", "black", "trained, black box"),
)
ATTACKS = (
    ("white", "trained", "code_reader", "black", "reads the kept pixels"),
    ("white", "trained", "attack_retrained", ORANGE, "retrained attacker"),
    ("white", "trained", "attack_frozen", GREY, "frozen attacker"),
    ("white", "trained", "accuracy", BLUE, "provider's utility"),
)
BOUNDS = (
    ("white", "trained", "accuracy", BLUE, "Cloak, masked"),
    ("uniform", "as trained", "accuracy", ORANGE, "uniform noise, as masked"),
    ("white", "noise", "accuracy", GREEN, "Cloak, noise only"),
    ("uniform", "as noise", "accuracy", GREY, "uniform noise, as noise only"),
)
"""Lines of a panel: box, fill, what is drawn, its colour and name."""
Lines = Sequence[tuple[str, str, str, str, str]]


def plot_curves(rows: Sequence[Row], path: Path) -> None:
    """Write a PNG: utility by fill, attackers against suppression, Cloak against uniform noise."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    fills, attacks, uniform = figure.subplots(1, 3)
    raw = fmean(number(row, "accuracy") for row in rows if row["box"] == "raw")
    for axes in (fills, uniform):
        axes.axhline(raw, color=GREY, linewidth=0.8, linestyle=":", label="raw")
    _draw(fills, rows, "path_ratio", UTILITY)
    fills.set(xlabel="share suppressed", ylabel="provider's accuracy", title="Utility")
    _draw(attacks, rows, "path_ratio", ATTACKS)
    attacks.set(xlabel="share suppressed", ylabel="(balanced) accuracy", title="Digit attackers")
    _draw(uniform, rows, "bound_nats", BOUNDS)
    uniform.set(xlabel="Gaussian bound, nats", ylabel="provider's accuracy", xscale="log")
    uniform.set_title("At equal bounds")
    for axes in (fills, attacks, uniform):
        axes.legend(fontsize=8)
    save(figure, path)


def _draw(axes: Axes, rows: Sequence[Row], across: str, lines: Lines) -> None:
    """Means over seeds at each ratio of the path."""
    for box, fill, up, colour, label in lines:
        points: dict[float, list[tuple[float, float]]] = {}
        for row in rows:
            if (row["box"], row["fill"]) == (box, fill) and not math.isnan(number(row, up)):
                ratio = number(row, "path_ratio")
                points.setdefault(ratio, []).append((number(row, across), number(row, up)))
        means = [tuple(map(fmean, zip(*points[ratio], strict=True))) for ratio in sorted(points)]
        if means:
            axes.plot(*zip(*means, strict=True), ".-", color=colour, label=label)
