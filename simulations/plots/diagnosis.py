"""A picture of a diagnosis: what was found, and what could have been, fault by fault."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure, FigureBase
from PIL import Image

from fedlens.diagnosis.deviation import Deviation
from fedlens.diagnosis.report import Diagnosis
from fedlens.foundation.names import call_class

BLUE, ORANGE, GREY = "#1f5fa8", "#d1711b", "#bbbbbb"
BELOW = 3.4
"""Inches that the mean images take."""


def plot_diagnosis(diagnosis: Diagnosis, path: Path) -> None:
    """Bars from 0 to the smallest share that would have been seen, findings with intervals on them.

    Where something has no name, the mean images that differ stand below.

    Args:
        diagnosis: what is drawn.
        path: PNG file to write.
    """
    height, below = 0.24 * len(diagnosis.smallest_detectable) + 1.4, diagnosis.deviation
    more = 0.0 if below is None or not below.shown else BELOW
    figure = Figure(figsize=(7.2, height + more), layout="constrained")
    with rc_context({"text.parse_math": False}):  # a class may be called $x$
        if below is None or not more:
            _draw_shares(figure, diagnosis)
        else:
            parts = np.ravel(np.asarray(figure.subfigures(2, height_ratios=(height, more))))
            _draw_shares(parts[0], diagnosis)
            _draw_deviation(parts[1], below, diagnosis.class_names)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _draw_shares(figure: FigureBase, diagnosis: Diagnosis) -> None:
    names = sorted(diagnosis.smallest_detectable, key=diagnosis.smallest_detectable.__getitem__)
    shares = [min(1.0, diagnosis.smallest_detectable[name]) for name in names]
    axes = figure.subplots()
    axes.barh(names, [100 * share for share in shares], color=GREY, label="could not be seen")
    for finding in diagnosis.findings:
        if finding.low is None or finding.high is None or finding.fault not in names:
            continue
        low, high = finding.share - finding.low, finding.high - finding.share
        axes.errorbar(
            100 * finding.share,
            names.index(finding.fault),
            xerr=[[100 * max(0.0, low)], [100 * max(0.0, high)]],
            fmt="o",
            color=ORANGE,
            capsize=4,
            label=f"found: {finding.says}",
        )
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of users, %", title=_title(diagnosis))
    axes.legend(loc="lower right", fontsize=8)


def _draw_deviation(figure: FigureBase, deviation: Deviation, names: Sequence[str]) -> None:
    """Mean images: of the reference, of users as their sums say, and the difference."""
    rows = ("reference", "users, as sums say", "difference")
    axes = figure.subplots(len(rows), len(deviation.shown), squeeze=False)
    for column, one in enumerate(deviation.shown):
        axes[0][column].set_title(call_class(one.label, names), fontsize=8)
        for row, png in enumerate((one.before, one.after, one.change)):
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(png))))
            axes[row][column].imshow(pixels, cmap="gray", vmin=0, vmax=255)
            axes[row][column].set(xticks=[], yticks=[])
    for row, words in enumerate(rows):
        axes[row][0].set_ylabel(words, fontsize=8)


def _title(diagnosis: Diagnosis) -> str:
    if not diagnosis.reference.fits:
        return "Nothing is claimed: the reference is of another kind"
    if not diagnosis.findings:
        return "No fault found"
    best = diagnosis.findings[0]
    if best.low is None or best.high is None:
        return f"No fault of the library explains it\nIt looks most like {best.like}"
    half = 100 * (best.high - best.low) / 2
    width = f" ± {half:.0f}" if math.isfinite(half) else ""
    return f"{best.says}: {100 * best.share:.0f}{width}% of users"
