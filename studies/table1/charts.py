"""The study's plots, as PNG files; they need no screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from studies.table1.literature import PublishedFigure
from studies.table1.rows import OPEN
from studies.table1.table import HEADLINE, TableLine

_DPI = 110
COLOURS = ("#1f5fa8", "#2a8c6c", "#d1711b", "#8b3a8b", "#b03030", "#5a7d1a", "#444444", "#c09020")
MARKS = "sv^D<>Pph*X8d"
ASIDE = 1.07  # How far marks of larger δ are moved to the right
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "embedded": "Embedded digits"}


def plot_privacy(
    lines: Sequence[TableLine], published: Sequence[PublishedFigure], path: Path
) -> Path | None:
    """Student accuracy against ε, a panel a data set, δ told by the mark; None without lines.

    PublishedFigure figures stand beside ours where they state (ε, δ)-differential privacy. Marks of
    larger δ are a little to the right, so as not to hide those of 1e-10.
    """
    panels = [d for d in NAMES if any(li.row.data == d and not li.row.fault for li in lines)]
    if not panels:
        return None
    figure = Figure(figsize=(6.2 * len(panels), 4.6), layout="constrained")
    for axes, data in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        ours = [li for li in lines if li.row.data == data and not li.row.fault]
        _draw_ours(axes, ours)
        _draw_published(axes, [p for p in published if p.data == data])
        axes.set(
            xscale="log",
            xlabel="ε (filled: δ = 1e-10; hollow, moved aside: larger δ; dashed: no privacy)",
        )
        axes.set(ylabel="student's accuracy on real test images, %", title=NAMES[data])
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(0.5, 20)
        axes.legend(fontsize=6.5, loc="center")
    return _saved(figure, path)


def _draw_ours(axes: Axes, lines: Sequence[TableLine]) -> None:
    names = list(dict.fromkeys(line.row.name for line in lines))
    for colour, name in zip(_cycle(len(names)), names, strict=True):
        own = [line for line in lines if line.row.name == name]
        label: str | None = own[0].row.title
        for line in own:
            found = line.figures[f"students.{HEADLINE}"]
            mean, spread = 100 * found.mean, 100 * (found.deviation or 0)
            if line.guarantee.named == OPEN:
                axes.axhline(mean, color=colour, linestyle="--", linewidth=0.8, label=label)
            elif line.guarantee.private:
                strong = line.guarantee.delta < 1e-9
                place = line.guarantee.epsilon * (1.0 if strong else ASIDE)
                axes.errorbar(
                    place, mean, spread, marker="o", capsize=2, color=colour, linestyle="none",
                    fillstyle="full" if strong else "none", label=label,
                )  # fmt: skip
            label = None  # a row is told once


def _draw_published(axes: Axes, published: Sequence[PublishedFigure]) -> None:
    """Others' figures in grey; hollow where the guarantee is Bayesian."""
    finite = [p for p in published if math.isfinite(p.epsilon)]
    methods = list(dict.fromkeys((p.method, p.notion) for p in finite))
    for number, (method, notion) in enumerate(methods):
        own = [p for p in finite if (p.method, p.notion) == (method, notion)]
        axes.plot(
            [p.epsilon for p in own], [p.accuracy for p in own], MARKS[number % len(MARKS)],
            color="#999999", markersize=5, fillstyle="none" if notion == "BDP" else "full",
            label=f"{method}{' (Bayesian DP)' if notion == 'BDP' else ''}",
        )  # fmt: skip


def plot_labels(
    lines: Sequence[TableLine], published: Sequence[PublishedFigure], path: Path
) -> Path | None:
    """Student accuracy against the number of labelled samples; None where it was not measured."""
    measured = [line for line in lines if line.curve()]
    panels = [d for d in NAMES if any(line.row.data == d for line in measured)]
    if not panels:
        return None
    figure = Figure(figsize=(6.2 * len(panels), 4.4), layout="constrained")
    for axes, data in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        own = [line for line in measured if line.row.data == data]
        for colour, line in zip(_cycle(len(own)), own, strict=True):
            _draw_curve(axes, line, colour)
        for one in (p for p in published if p.data == data and p.notion == "BDP"):
            label = f"{one.method}, {one.guarantee}, all labelled"
            axes.axhline(one.accuracy, color="#999999", linewidth=0.8, label=label)
        axes.set(xscale="log", xlabel="labelled synthetic samples", title=NAMES[data])
        axes.set(ylabel="student's accuracy on real test images, %")
        axes.legend(fontsize=7, loc="lower right")
    return _saved(figure, path)


def _draw_curve(axes: Axes, line: TableLine, colour: str) -> None:
    points = line.curve()
    counts = [point["labels"] for point in points]
    for key, style, said in (
        ("annotated", "-", "labels of a network in a person's place"),
        ("extended", "--", "those, and guesses for other samples"),
        ("requested", ":", "requested classes"),
    ):
        shown = [100 * point[key] for point in points]
        label = f"{line.row.title}, {line.guarantee.words}: {said}"
        axes.plot(counts, shown, style, marker=".", color=colour, label=label)


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _saved(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    return path
