"""The study's plots, as PNG files; they need no screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from fedlens.data.registry import spec_of
from fedlens_research.framework.charts import save
from fedlens_research.table1.literature import PublishedFigure
from fedlens_research.table1.rows import OPEN
from fedlens_research.table1.table import HEADLINE, TableLine, by_data

COLOURS = ("#1f5fa8", "#2a8c6c", "#d1711b", "#8b3a8b", "#b03030", "#5a7d1a", "#444444", "#c09020")
MARKS = "sv^D<>Pph*X8d"
ASIDE = 1.07  # How far marks of larger δ are moved to the right


def plot_privacy(
    lines: Sequence[TableLine], published: Sequence[PublishedFigure], path: Path
) -> Path | None:
    """Student accuracy against ε, a panel a data set, δ told by the mark; None without lines.

    Published figures stand beside ours where they state (ε, δ)-differential privacy. Marks of
    larger δ are a little to the right, so as not to hide those of 1e-10.
    """

    def draw(axes: Axes, data: str, ours: Sequence[TableLine]) -> None:
        _draw_ours(axes, ours)
        _draw_published(axes, [p for p in published if p.data == data])
        axes.set_xlabel("ε (filled: δ = 1e-10; hollow, moved aside: larger δ; dashed: no privacy)")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(0.5, 20)
        axes.legend(fontsize=6.5, loc="center")

    return _panels(by_data(line for line in lines if not line.row.fault), draw, path)


def _panels(
    panels: Mapping[str, Sequence[TableLine]],
    draw: Callable[[Axes, str, Sequence[TableLine]], None],
    path: Path,
) -> Path | None:
    """Students' accuracy, a panel a data set; None without any."""
    if not panels:
        return None
    figure = Figure(figsize=(6.2 * len(panels), 4.6), layout="constrained")
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (data, lines) in zip(every, panels.items(), strict=True):
        axes.set(ylabel="student's accuracy on real test images, %", title=spec_of(data).title)
        draw(axes, data, lines)
    return save(figure, path)


def _draw_ours(axes: Axes, lines: Sequence[TableLine]) -> None:
    names = list(dict.fromkeys(line.row.name for line in lines))
    for place, name in enumerate(names):
        colour, own = _colour(place), [line for line in lines if line.row.name == name]
        label: str | None = own[0].row.title
        for line in own:
            found = line.figures[f"students.{HEADLINE}"]
            mean, spread = 100 * found.mean, 100 * (found.deviation or 0)
            if line.guarantee.named == OPEN:
                axes.axhline(mean, color=colour, linestyle="--", linewidth=0.8, label=label)
            elif line.guarantee.private:
                strong = line.guarantee.delta < 1e-9
                axes.errorbar(
                    line.guarantee.epsilon * (1.0 if strong else ASIDE), mean, spread, marker="o",
                    capsize=2, color=colour, linestyle="none",
                    fillstyle="full" if strong else "none", label=label,
                )  # fmt: skip
            label = None  # a row is told once


def _draw_published(axes: Axes, published: Sequence[PublishedFigure]) -> None:
    """Others' figures in grey; hollow where the guarantee is Bayesian."""
    methods: dict[tuple[str, str], list[PublishedFigure]] = {}
    for one in published:
        if math.isfinite(one.epsilon):
            methods.setdefault((one.method, one.notion), []).append(one)
    for number, ((method, notion), own) in enumerate(methods.items()):
        axes.plot(
            [p.epsilon for p in own], [p.accuracy for p in own], MARKS[number % len(MARKS)],
            color="#999999", markersize=5, fillstyle="none" if notion == "BDP" else "full",
            label=f"{method}{' (Bayesian DP)' if notion == 'BDP' else ''}",
        )  # fmt: skip


def plot_labels(
    lines: Sequence[TableLine], published: Sequence[PublishedFigure], path: Path
) -> Path | None:
    """Student accuracy against the number of labelled samples; None where it was not measured."""

    def draw(axes: Axes, data: str, own: Sequence[TableLine]) -> None:
        for place, line in enumerate(own):
            _draw_curve(axes, line, _colour(place))
        for one in (p for p in published if p.data == data and p.notion == "BDP"):
            label = f"{one.method}, {one.guarantee}, all labelled"
            axes.axhline(one.accuracy, color="#999999", linewidth=0.8, label=label)
        axes.set(xscale="log", xlabel="labelled synthetic samples")
        axes.legend(fontsize=7, loc="lower right")

    return _panels(by_data(line for line in lines if line.curve()), draw, path)


def _draw_curve(axes: Axes, line: TableLine, colour: str) -> None:
    points = line.curve()
    for key, style, said in (
        ("annotated", "-", "labels of a network in a person's place"),
        ("extended", "--", "those, and guesses for other samples"),
        ("requested", ":", "requested classes"),
    ):
        label = f"{line.row.title}, {line.guarantee.words}: {said}"
        shown = [100 * point[key] for point in points]
        counts = [point["labels"] for point in points]
        axes.plot(counts, shown, style, marker=".", color=colour, label=label)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
