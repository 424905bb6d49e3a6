"""Pictures of study ``cloak``: curves of utility and attack, and images before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from client.datasets.attributes.data import PrivateData
from privatizers.export import release
from simulations.plots.style import BLUE, GREEN, GREY, ORANGE
from studies.framework.tables import Row

SHOWN = 10
DPI = 110


def plot_curves(rows: Sequence[Row], path: Path) -> None:
    """Write a PNG: utility by fill, attackers against suppression, Cloak against uniform noise."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    fills, attacks, uniform = figure.subplots(1, 3)
    raw = [float(row["accuracy"] or 0) for row in rows if row["box"] == "raw"]
    for axes in (fills, uniform):
        axes.axhline(sum(raw) / len(raw), color=GREY, linewidth=0.8, linestyle=":", label="raw")
    for fill, colour in (("trained", BLUE), ("mean", GREEN), ("zeros", ORANGE), ("noise", GREY)):
        _line(fills, rows, "white", fill, "path_ratio", "accuracy", colour, fill)
    _line(fills, rows, "black", "trained", "path_ratio", "accuracy", "black", "trained, black box")
    fills.set(xlabel="share suppressed", ylabel="provider's accuracy", title="Utility")
    for name, colour in (("retrained", ORANGE), ("frozen", GREY)):
        _line(
            attacks,
            rows,
            "white",
            "trained",
            "path_ratio",
            f"attack_{name}",
            colour,
            f"{name} attacker",
        )
    _line(attacks, rows, "white", "trained", "path_ratio", "accuracy", BLUE, "provider's utility")
    attacks.set(xlabel="share suppressed", ylabel="(balanced) accuracy", title="Digit attackers")
    for box, fill, colour, label in (
        ("white", "trained", BLUE, "Cloak, masked"),
        ("uniform", "as trained", ORANGE, "uniform noise, as masked"),
        ("white", "noise", GREEN, "Cloak, noise only"),
        ("uniform", "as noise", GREY, "uniform noise, as noise only"),
    ):
        _line(uniform, rows, box, fill, "bound_nats", "accuracy", colour, label)
    uniform.set(xlabel="Gaussian bound, nats", ylabel="provider's accuracy", xscale="log")
    uniform.set_title("At equal bounds")
    for axes in (fills, attacks, uniform):
        axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)


def _line(
    axes: Axes,
    rows: Sequence[Row],
    box: str,
    fill: str,
    across: str,
    up: str,
    colour: str,
    label: str,
) -> None:
    points = [
        (float(row[across] or 0), float(row[up] or 0), float(row["path_ratio"] or 0))
        for row in rows
        if row["box"] == box and row["fill"] == fill and row.get(up) is not None
    ]
    places = sorted({ratio for _, _, ratio in points})
    if not places:
        return
    means = [[point for point in points if point[2] == ratio] for ratio in places]
    axes.plot(
        [sum(one[0] for one in group) / len(group) for group in means],
        [sum(one[1] for one in group) / len(group) for group in means],
        ".-",
        color=colour,
        label=label,
    )


def plot_sheet(data: PrivateData, filters: Mapping[str, nn.Module], seed: int, path: Path) -> None:
    """Write a PNG: a test image of each class of the attribute, raw and as each filter sends it."""
    rows = [int((data.sensitive == one).nonzero()[0]) for one in torch.unique(data.sensitive)][
        :SHOWN
    ]
    records = data.records[rows]
    lines = {"raw": records} | {
        name: release(filter_, records, torch.Generator().manual_seed(seed))
        for name, filter_ in filters.items()
    }
    figure = Figure(figsize=(len(rows) + 0.8, len(lines)), layout="constrained")
    panels = figure.subplots(len(lines), len(rows), squeeze=False)
    for line, (name, images) in zip(panels, lines.items(), strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(image[0].numpy(), cmap="gray", vmin=data.low, vmax=data.high)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
