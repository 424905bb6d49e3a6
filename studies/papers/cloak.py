"""Study ``cloak``: how little of a digit a service needs to say whether it is above 5.

After Mireshghallah et al. 2021 (Cloak, arXiv:2003.12154).

The provider is a LeNet that never changes. A noise map learns along a path of suppression ratios,
each warm-started by the one before; at the reported ratios the mask is taken, its four fills are
made (the constants of ``trained`` learn), and each is judged on test images: what the provider
still gets right, which digit attackers read (fitted on raw images, *frozen*; fitted on released
images, *retrained*), the Gaussian bound, and fairness between thick and thin writing. Then the same
with a substitute that only learned the provider's answers, and uniform noise with the same bound.

Two figures stand beside each other on purpose. A frozen attacker flatters: it fails on images of a
kind it never saw. A retrained one reads the digit from few pixels; suppressed is not hidden.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from client.datasets.attributes import load_private
from privatizers.black_box import Follower
from privatizers.networks.masks import FILLS, threshold_of
from studies.framework.study import SeedTrial
from studies.framework.tables import Row
from studies.papers.cloak_judging import CloakJudge, raw_row, uniform_rows
from studies.papers.cloak_plots import plot_curves
from studies.papers.cloak_training import (
    CloakSettings,
    CloakTraining,
    train_path,
    train_provider,
    train_substitute_of,
    train_values,
)

COLUMNS = (
    "box", "fill", "suppressed", "seed", "accuracy", "loss_points", "paper_accuracy",
    "attack_frozen", "attack_retrained", "leak_at_least", "bound_nats", "ite_style_loss",
    "demographic_parity", "equalized_odds_sum", "ms", "service_ms", "seconds",
)  # fmt: skip


SETTINGS = CloakSettings


def draw(rows: Sequence[Row], settings: CloakSettings, out: Path) -> None:
    """Curves over the ratios, of all seeds."""
    plot_curves(rows, out / "curves.png")


def run_seed(settings: CloakSettings, trial: SeedTrial) -> list[Row]:
    """Train and judge; sheets of images go to the study's folder."""
    seed, report = trial.seed, trial.report
    start = time.perf_counter()
    data = load_private(settings.source, trial.data_dir, seed)
    group = load_private(settings.protected, trial.data_dir, seed).test.sensitive
    training = CloakTraining(settings, data.train.take(slice(0, len(data.train) * 9 // 10)), seed)
    provider = train_provider(training)
    report(f"seed {seed}: the provider is trained, {time.perf_counter() - start:.0f} s")
    judge = CloakJudge(settings, data, group, provider, seed)
    rows = [raw_row(judge)]
    boxes: dict[str, tuple[nn.Module, Follower | None]] = {"white": (provider, None)}
    if settings.black_box:
        boxes["black"] = train_substitute_of(training, provider, report)
    for box, target in boxes.items():
        start = time.perf_counter()
        for ratio, noise in train_path(training, *target):
            spent = time.perf_counter() - start
            report(f"seed {seed}, {box} box: {ratio:.0%} suppressed, {spent:.0f} s")
            if ratio in settings.reported:
                threshold = threshold_of(noise.sigma(), ratio)
                filters = {fill: training.mask(noise, threshold, fill) for fill in FILLS}
                train_values(training, filters["trained"], *target)
                spent = time.perf_counter() - start
                found = [
                    {**judge.row(one, box, fill, ratio), "threshold": threshold, "seconds": spent}
                    for fill, one in filters.items()
                ]
                if box == "white":
                    judge.draw_sheet(filters, trial.out / f"sheet-{ratio:g}.png")
                lost = ", ".join(f"{row['fill']} {row['loss_points']:.1f}" for row in found)
                report(f"seed {seed}, {box} box: points lost at {ratio:.0%}: {lost}")
                rows, start = rows + found, time.perf_counter()
    rows += uniform_rows(judge, rows)
    return rows
