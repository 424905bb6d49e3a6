"""Plots of a curve and sheets of what its filters release, as PNG files.

Plots are drawn from the curve's figures. Sheets show records of the test part before and after:
they are real where the data are, so they stay in the folder that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlens.privatizers.private_data import PrivateData
from fedlens.simulations.plots.style import BLUE, GREEN, GREY, ORANGE
from fedlens_research.framework.charts import plot_loads, plot_sheet, save
from fedlens_research.tradeoff.figures import BLIND, LABEL, Curve, CurvePoint
from fedlens_research.tradeoff.points import IMAGES, SERIES, kind_of

COLOURS = (BLUE, ORANGE, GREEN, "#8a6fb0", "#a61b1b", "#4f6d7a")
STYLES = {"prior": ":", "side-information": "-.", "position": (0, (1, 3))}


def plot_sensitive(curve: Curve, path: Path) -> Path:
    """Every attacker's balanced accuracy against the utility, with all lines of reference."""
    figure, axes, colours = _drawn(curve, "balanced", ("low", "high"))
    for name, colour in colours.items():
        level = curve.raw.attack(name, "balanced") if name in curve.raw.attackers else None
        if level is not None:
            axes.axhline(level, color=colour, linewidth=0.7, alpha=0.5)
    for name in BLIND:
        if name in curve.raw.attackers:
            level = curve.raw.attack(name, "balanced") or 0.0
            axes.axhline(level, color=GREY, linestyle=STYLES[name], label=f"{name} only")
    axes.set(ylabel="balanced accuracy on the sensitive attribute")
    return _finish(
        figure,
        axes,
        curve,
        "code: has the weights and reads the code; thin lines: on raw records",
        path,
    )


def plot_leak(curve: Curve, path: Path) -> Path:
    """Every attacker's lower bound on the leak against the utility, with K where there is one."""
    figure, axes, _ = _drawn(curve, "leak", ("leak_low", "leak_high"))
    if curve.least_sum is not None:
        label = f"K = {curve.least_sum:.3g}: leaks at least, if all of the utility is kept"
        axes.axhline(curve.least_sum, color=GREY, linestyle="--", label=label)
    axes.set(ylabel="I(S;Q) is at least (nats)")
    return _finish(figure, axes, curve, "lower bounds: a better attacker may find more", path)


def plot_examples(raw: PrivateData, shown: Mapping[str, PrivateData], path: Path) -> Path:
    """A few test records before, and as each named filter releases them."""
    rows = {"raw": raw, **shown}
    if kind_of(raw) == IMAGES:
        images = {name: data.records for name, data in rows.items()}
        return plot_sheet(images, path, limits=(raw.low, raw.high))
    if kind_of(raw) == SERIES:
        return plot_loads(rows, path)
    return _plot_points(rows, path)


def _plot_points(rows: Mapping[str, PrivateData], path: Path) -> Path:
    figure = Figure(figsize=(3.2 * len(rows), 3.2), layout="constrained")
    for axes, (name, data) in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows.items()):  # noqa: B905
        for value in range(data.sensitive_classes):
            own = data.records[data.sensitive == value]
            axes.scatter(own[:, 0], own[:, -1], s=4, color=COLOURS[value % 6], label=f"S={value}")
        axes.set_title(name, fontsize=8)
    axes.legend(fontsize=7)
    return save(figure, path)


def _drawn(curve: Curve, part: str, ends: tuple[str, str]) -> tuple[Figure, Axes, dict[str, str]]:
    """Every attacker's line, with the bootstrap interval of each point, and the lines' colours."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes, colours = figure.subplots(), dict(zip(curve.places[0].attackers, COLOURS * 3))  # noqa: B905
    for name, colour in colours.items():
        rows = []
        for place in curve.places:
            low, middle, high = (place.attack(name, one) for one in (ends[0], part, ends[1]))
            if low is not None and middle is not None and high is not None:
                rows.append((_utility(place), middle, max(0, middle - low), max(0, high - middle)))
        across, up, *off = zip(*sorted(rows), strict=True)
        axes.errorbar(across, up, off, fmt="-o", markersize=4, capsize=2, color=colour, label=name)
    return figure, axes, colours


def _utility(place: CurvePoint) -> float:
    return place.mean(lambda one: one.utility) or 0.0


def _finish(figure: Figure, axes: Axes, curve: Curve, note: str, path: Path) -> Path:
    seeds = f"{len(curve.seeds)} seed{'' if len(curve.seeds) == 1 else 's'}"
    axes.axvline(_utility(curve.raw), color=GREY, linewidth=0.7, linestyle=":")
    axes.set(xlabel=f"utility ({curve.measure}); dotted: raw records")
    title = f"{curve.method} on {curve.data}, {seeds}\n{LABEL}; {note}"
    axes.set_title(title, fontsize=8)
    axes.legend(fontsize=7)
    return save(figure, path)
