"""Pictures of a run: contact sheets of samples, and plots. All work without a screen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fedlens.store import RoundRecord

SCALE = 2
MARGIN = 24
GRID_COLUMNS = 10
"""Of a sheet of samples without classes."""
BACKGROUND, INK = (250, 250, 248), (60, 60, 60)


def contact_sheet(
    images: NDArray[np.uint8], labels: NDArray[np.int64], *, rows: int, caption: str, path: Path
) -> None:
    """Write a PNG sheet: a column a class, ``rows`` samples of each, the caption below.

    Args:
        images: uint8 [n, c, h, w].
        labels: requested class of each, int64 [n]; -1 of all that are unlabelled, which have a
            grid without names.
        rows: samples a class at most, or of the grid.
        caption: provenance, which every sheet carries.
        path: PNG file to write.
    """
    labels, names = sheet_columns(labels)
    classes = sorted(set(labels.tolist()))
    side = images.shape[2] * SCALE
    width, height = side * len(classes), side * rows
    font = letters(11)
    lines = textwrap.wrap(caption, width // 7, break_long_words=False, break_on_hyphens=False)
    sheet = Image.new("RGB", (width, height + MARGIN + 14 * len(lines) + 8), BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    for column, name in enumerate(classes):
        pen.text((column * side + side // 2 - 3, 6), names[column], fill=INK, font=font)
        for row, image in enumerate(images[labels == name][:rows]):
            sheet.paste(_enlarged(image), (column * side, MARGIN + row * side))
    for number, line in enumerate(lines):
        pen.text((4, MARGIN + height + 4 + 14 * number), line, fill=INK, font=font)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def sheet_columns(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str]]:
    """The column of each sample, int64 [n], and what stands above each column.

    Args:
        labels: requested classes, int64 [n]; -1 of unlabelled samples, which fill a grid in turn.
    """
    if (labels >= 0).any():
        return labels, [str(name) for name in sorted(set(labels.tolist()))]
    return np.arange(len(labels)) % GRID_COLUMNS, [""] * GRID_COLUMNS


def letters(size: int) -> ImageFont.FreeTypeFont:
    """What pictures are lettered with: matplotlib brings it, so it is there on any machine."""
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _enlarged(image: NDArray[np.uint8]) -> Image.Image:
    pixels = np.repeat(np.repeat(image, SCALE, axis=1), SCALE, axis=2)
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, 2))


def plot_run(rounds: Sequence[RoundRecord], path: Path) -> None:
    """Write a PNG with both accountants' ε against rounds, and the generator's loss below."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    privacy, losses = figure.subplots(2, 1, sharex=True)
    _draw_epsilons(privacy, rounds)
    trained = [r for r in rounds if "generator_loss" in r.metrics]  # not in the annotator's rounds
    losses.plot([r.round for r in trained], [r.metrics["generator_loss"] for r in trained], "k.-")
    losses.set(xlabel="round", ylabel="generator loss")
    losses.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw_epsilons(axes: Axes, rounds: Sequence[RoundRecord]) -> None:
    last = rounds[-1]
    series = {
        f"DP, any user (δ={last.delta_dp:g})": [r.dp_epsilon for r in rounds],
        f"Bayesian DP, sound (δ={last.delta_bdp:g})": [r.bdp_sound for r in rounds],
        f"Bayesian DP, corrected estimate (δ={last.delta_bdp:g})": [
            r.bdp_corrected for r in rounds
        ],
        f"Bayesian DP, as published (δ={last.delta_bdp:g})": [r.bdp_as_published for r in rounds],
    }
    for (name, values), style in zip(series.items(), ("-", "-.", "--", ":"), strict=True):
        axes.plot([r.round for r in rounds], values, style, marker=".", label=name)
    axes.set(ylabel="ε spent", title="Privacy spent")
    if not math.isfinite(last.dp_epsilon):
        axes.set_title("NOT PRIVATE: no noise was added, ε is infinite", color="firebrick")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
