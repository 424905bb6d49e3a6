"""A picture of a diagnosis: what was found, and what could have been, fault by fault."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.figure import Figure

from fedlens.diagnosis.report import Diagnosis

BLUE, ORANGE, GREY = "#1f5fa8", "#d1711b", "#bbbbbb"


def plot_diagnosis(diagnosis: Diagnosis, path: Path) -> None:
    """Bars from 0 to the smallest share that would have been seen, findings with intervals on them.

    Args:
        diagnosis: what is drawn.
        path: PNG file to write.
    """
    names = sorted(diagnosis.smallest_detectable, key=diagnosis.smallest_detectable.__getitem__)
    shares = [min(1.0, diagnosis.smallest_detectable[name]) for name in names]
    figure = Figure(figsize=(7.2, 0.24 * len(names) + 1.4), layout="constrained")
    axes = figure.subplots()
    axes.barh(names, [100 * share for share in shares], color=GREY, label="could not be seen")
    for finding in diagnosis.findings:
        place = names.index(finding.fault)
        low, high = finding.share - finding.low, finding.high - finding.share
        axes.errorbar(
            100 * finding.share,
            place,
            xerr=[[100 * max(0.0, low)], [100 * max(0.0, high)]],
            fmt="o",
            color=ORANGE,
            capsize=4,
            label=f"found: {finding.says}",
        )
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of users, %", title=_title(diagnosis))
    axes.legend(loc="lower right", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _title(diagnosis: Diagnosis) -> str:
    if not diagnosis.reference.fits:
        return "Nothing is claimed: the reference is of another kind"
    if not diagnosis.findings:
        return "No fault found"
    best = diagnosis.findings[0]
    half = 100 * (best.high - best.low) / 2
    width = f" ± {half:.0f}" if math.isfinite(half) else ""
    return f"{best.says}: {100 * best.share:.0f}{width}% of users"
