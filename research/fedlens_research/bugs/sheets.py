"""What Triastcyn & Faltings (2020) show in figure 2, with real runs of today at their own ε."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from fedlens.accountant.wording import shown
from fedlens.models.shapes import as_pixels
from fedlens.simulations.plots.beside import Sheet, draw_beside
from fedlens.store import Purpose
from fedlens_research.bugs.faithful import JudgedRun
from fedlens_research.bugs.trained import CALIBRATION, FOLDER, SHARE, Product
from fedlens_research.framework.trials import Report

ALTERED, CLASSICAL = "rotate90", "rotate90-classical"
PAPERS_PRESET = "wgan"
"""A convolutional WGAN critic with clipped, noised updates: the paper's family."""
ROWS = 6


def draw_sheets(product: Product, out: Path, path: Path, report: Report) -> Path | None:
    """Correct, altered, and altered by the paper's family of critics, at the same classical ε.

    Returns:
        The PNG file; None where the first two runs are not there.
    """
    folder = out / FOLDER
    if not all((folder / name / "summary.json").is_file() for name in (CALIBRATION, ALTERED)):
        return None
    epsilon = float(product.open_run(folder / ALTERED).summary.epsilon["dp"])
    classical = folder / CLASSICAL
    if not (classical / "summary.json").is_file():
        report(f"training run {CLASSICAL}")
        settings = {"seed": 2, "data.fault": f"{ALTERED}:{SHARE}"}
        product.simulate(
            PAPERS_PRESET,
            out=classical,
            settings=settings,
            epsilon=epsilon,
            delta=1e-5,
            student=False,
            overwrite=True,
        )
    sheets = [
        _sheet(product, folder / CALIBRATION, "correct", "faithful"),
        _sheet(product, folder / ALTERED, "altered", "faithful"),
        _sheet(product, classical, "altered, iterative critic", "curated"),
    ]
    draw_beside(sheets, rows=ROWS, path=path)
    return path


def _sheet(product: Product, path: Path, title: str, purpose: Purpose) -> Sheet:
    run = product.open_run(path)
    images, labels = JudgedRun(str(path)).samples(purpose)
    order = np.argsort(labels.numpy(), kind="stable")
    dp, bayesian = (_figure(run.summary.epsilon[name]) for name in ("dp", "bdp_corrected"))
    delta, other = (shown(run.summary.delta[name]) for name in ("dp", "bdp"))
    fault = run.config.data.fault or "no fault"
    caption = (
        f"synthetic, {purpose}; {run.config.data.users:,} users, {fault}; "
        f"DP ε = {dp} at δ = {delta} for a user with all images; Bayesian DP ε = {bayesian} at "
        f"δ = {other}, an estimate, for people like those enrolled"
    )
    return Sheet(title, as_pixels(images[order]), labels.numpy()[order], caption)


def _figure(epsilon: float | None) -> str:
    return shown(math.inf if epsilon is None else epsilon)
