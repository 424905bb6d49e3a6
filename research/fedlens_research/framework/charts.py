"""Plots of the studies of privatizers, as PNG files; they need no screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedlens.privatizers.private_data import PrivateData
from fedlens.simulations.plots.style import BLUE, GREEN, GREY, ORANGE

_DPI = 110
COLOURS = (BLUE, GREEN, ORANGE)
STYLES = (("-", "o"), ("--", "s"))  # Lines of trajectories, and the marks at their ends


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, its folder made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    return path


def plot_plane(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    bounds: Mapping[str, float],
    path: Path,
) -> Path:
    """Trajectories in the information plane: what is lost of the utility against what leaks.

    Args:
        panels: panel -> trajectory's name -> its points (A, B) in nats, in order. A name is
            "kind, setting": a setting has one colour, whatever the kind, and a kind one line style.
        bounds: panel -> K; the line A + B = K that no filter passes is drawn.
        path: PNG file to write.
    """
    figure = Figure(figsize=(4.2 * len(panels), 3.8), layout="constrained")
    for axes, (title, lines) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        kinds, settings = (_places(lines, side) for side in (0, 1))
        for name, points in lines.items():
            kind, _, setting = name.partition(", ")
            colour = COLOURS[settings[setting] % len(COLOURS)]
            line, end = STYLES[kinds[kind] % len(STYLES)]
            lost, leaked = np.array(points).T
            axes.plot(lost, leaked, line, marker=".", markersize=3, linewidth=0.9, color=colour)
            axes.plot(lost[-1], leaked[-1], end, linestyle=line, color=colour, label=name)
        edge = bounds[title]
        axes.plot([0, edge], [edge, 0], "--", color=GREY, linewidth=1, label=f"A + B = {edge:.3f}")
        axes.set(xlabel="A: utility that is lost (nats)", ylabel="B: attribute that leaks (nats)")
        axes.set_title(title)
        axes.legend(fontsize=7)
    return save(figure, path)


def _places(lines: Mapping[str, object], side: int) -> dict[str, int]:
    """The kinds (0) or settings (1) among the trajectories' names, numbered as they come."""
    found = dict.fromkeys(name.partition(", ")[2 * side] for name in lines)
    return {name: place for place, name in enumerate(found)}


def plot_lines(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    xlabel: str,
    ylabel: str,
    level: tuple[str, float] | None = None,
    path: Path,
) -> Path:
    """Named lines through points (x, y), in any order, with one level's name and height, dotted."""
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for place, (name, points) in enumerate(lines.items()):
        style = "-o" if place < len(COLOURS) else "--s"
        x, y = np.array(sorted(points)).T
        axes.plot(x, y, style, markersize=4, color=COLOURS[place % len(COLOURS)], label=name)
    if level is not None:
        axes.axhline(level[1], color=GREY, linestyle=":", label=level[0])
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.legend(fontsize=7)
    return save(figure, path)


def plot_sheet(
    rows: Mapping[str, Tensor], path: Path, *, limits: tuple[float, float] = (-1.0, 1.0)
) -> Path:
    """Images side by side, say before and after a filter, black and white at ``limits``.

    A row each: its name -> images float32 [n, c, h, w], all rows of one n.
    """
    columns = len(next(iter(rows.values())))
    figure = Figure(figsize=(0.8 * columns + 1, 1.0 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes_row, (name, images) in zip(grid, rows.items(), strict=True):
        for axes, image in zip(axes_row, images, strict=True):
            picture = ((image.detach() - limits[0]) / (limits[1] - limits[0])).clamp(0, 1)
            shown = picture[0] if len(picture) == 1 else torch.movedim(picture, 0, -1)
            axes.imshow(shown.numpy(), cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        axes_row[0].set_ylabel(name, rotation=0, ha="right", fontsize=7)
    return save(figure, path)


def plot_loads(loads: Mapping[str, PrivateData], path: Path) -> Path:
    """Released loads over the raw ones, hours with a person active shaded.

    Panel's name -> the same sequences; the first panel has the raw ones.
    """
    raw = next(iter(loads.values()))
    hours = np.arange(raw.records[..., 0].numel())
    figure = Figure(figsize=(9, 1.5 * len(loads)), layout="constrained")
    panels = figure.subplots(len(loads), 1, squeeze=False)[:, 0]
    for axes, (name, data) in zip(panels, loads.items(), strict=True):
        axes.plot(hours, raw.records.flatten().numpy(), color=GREY, linewidth=0.9, label="raw")
        if data is not raw:
            axes.plot(hours, data.records.flatten().numpy(), color=BLUE, linewidth=1.1, label=name)
        active = raw.sensitive.flatten().numpy() == 1
        top = float(raw.records.max())
        axes.fill_between(hours, 0, top, where=active, color=GREEN, alpha=0.15, linewidth=0)
        axes.set(ylabel="kW", xlim=(0, len(hours)))
        axes.legend(fontsize=7, loc="upper right")
    panels[-1].set_xlabel(f"{len(raw)} sequences of {raw.shape[0]} hours; shaded: a person active")
    return save(figure, path)
