"""Loads before and after a releaser, one panel each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from client.datasets.attributes.data import PrivateData
from simulations.plots.style import BLUE, GREEN, GREY
from studies.framework.charts import save


def plot_loads(loads: Mapping[str, PrivateData], path: Path) -> Path:
    """Released loads over the raw ones, hours with a person active shaded.

    Args:
        loads: panel's name -> the same sequences; the first panel has the raw ones.
        path: PNG file to write.
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
