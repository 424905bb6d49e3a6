"""Study ``cloak``: how little of a digit a service needs to say whether it is above 5.

After Mireshghallah et al. 2021 (Cloak, arXiv:2003.12154).

The provider is a LeNet that never changes. A noise map learns along a path of suppression ratios,
each warm-started by the one before; at the reported ratios the mask is taken, its four fills are
made (the constants of ``trained`` learn), and each is judged on test images: what the provider
still gets right, which digit attackers read (fitted on raw images, *frozen*; fitted on released
images, *retrained*), the Gaussian bound, and fairness between thick and thin writing. Then the same
with a substitute that only learned the provider's answers, and uniform noise with the same bound.

``code_reader`` reads the kept pixels as what they are, with every labelled record there is; the
strongest reader of a mask may also be ``attack_retrained``, which sees them in their places.
Two figures stand beside each other on purpose. A frozen attacker flatters: it fails on images of a
kind it never saw. A retrained one reads the digit from few pixels; suppressed is not hidden.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from torch import nn

from fedlens.data.attributes import load_private
from fedlens.foundation.tables import Row
from fedlens.privatizers.attacks.filter_files import keep_filter
from fedlens.privatizers.attacks.gate import CODE_COLUMNS
from fedlens.privatizers.networks.masks import FILLS, NoiseMap, threshold_of
from fedlens_research.filters.black_box import Follower
from fedlens_research.framework.pieces import Piece
from fedlens_research.framework.study import SeedTrial
from fedlens_research.papers.cloak_judging import CloakJudge, raw_row, uniform_rows
from fedlens_research.papers.cloak_plots import plot_curves
from fedlens_research.papers.cloak_training import (
    CloakSettings,
    CloakTraining,
    first_map,
    settled,
    train_path,
    train_provider,
    train_ratio,
    train_substitute_of,
    train_values,
)

COLUMNS = (
    "box", "fill", "suppressed", "seed", "accuracy", "loss_points", *CODE_COLUMNS, "paper_accuracy",
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
    data = load_private(settings.source, trial.data_dir, seed)
    group = load_private(settings.protected, trial.data_dir, seed).test.sensitive
    training = CloakTraining(settings, data.train.take(slice(0, len(data.train) * 9 // 10)), seed)

    @cache
    def judge() -> CloakJudge:
        start = time.perf_counter()
        provider = train_provider(training)
        report(f"seed {seed}: the provider is trained, {time.perf_counter() - start:.0f} s")
        return CloakJudge(settings, data, group, provider, seed)

    rows = trial.rows({"raw": True}, lambda: [raw_row(judge())])
    for box in ("white", *(["black"] if settings.black_box else [])):
        rows += _BoxPath(training, judge, box, trial).rows()
    return rows + trial.rows({"uniform": True}, lambda: uniform_rows(judge(), rows))


@dataclass(frozen=True, eq=False)
class _BoxPath:
    """The path of one box; it is walked as far as rows are missing."""

    training: CloakTraining
    judge: Callable[[], CloakJudge]
    box: str
    trial: SeedTrial

    def rows(self) -> list[Row]:
        """Those of every reported ratio, in the path's order."""
        settings, maps = self.training.settings, self.maps()
        found: list[Row] = []
        for ratio in settings.ratios:
            if ratio in settings.reported:
                key = {"box": self.box, "ratio": ratio}
                found += self.trial.rows(key, lambda ratio=ratio: self._judged(maps, ratio))  # type: ignore[misc]
        return found

    @cached_property
    def target(self) -> tuple[nn.Module, Follower | None]:
        """What the map learns on."""
        provider = self.judge().provider
        if self.box == "white":
            return provider, None
        return train_substitute_of(self.training, provider, self.trial.report)

    def maps(self) -> Iterator[tuple[float, NoiseMap]]:
        """The map at each ratio; a white box's are kept, a substitute changes along its path."""
        start, seed = time.perf_counter(), self.trial.seed
        path = self._kept_maps() if self.box == "white" else train_path(self.training, *self.target)
        for ratio, noise in path:
            spent = time.perf_counter() - start
            words = f"seed {seed}, {self.box} box: {ratio:.0%} suppressed, {spent:.0f} s"
            self.trial.report(words)
            yield ratio, noise

    def _kept_maps(self) -> Iterator[tuple[float, NoiseMap]]:
        noise = first_map(self.training, cautious=False)
        for ratio in self.training.settings.ratios:

            def train(ratio: float = ratio) -> Piece:
                train_ratio(self.training, noise, ratio, *self.target)
                return Piece([], {name: one.detach() for name, one in noise.state_dict().items()})

            noise.load_state_dict(dict(self.trial.piece({"map": ratio}, train).shown))
            yield ratio, copy.deepcopy(noise)

    def _judged(self, maps: Iterator[tuple[float, NoiseMap]], wanted: float) -> list[Row]:
        start = time.perf_counter()
        path = next(noise for ratio, noise in maps if ratio == wanted)
        noise = settled(self.training, path, *self.target)
        threshold = threshold_of(noise.sigma(), wanted)
        filters = {fill: self.training.mask(noise, threshold, fill) for fill in FILLS}
        train_values(self.training, filters["trained"], *self.target)
        judge, trial = self.judge(), self.trial
        place = trial.filter_path(f"{self.box} {wanted:g}")
        code, claims = judge.code(filters["trained"])
        keep_filter(filters["trained"], self.training.data, place, claims)
        more = {"threshold": threshold, "seconds": time.perf_counter() - start}
        found = [
            {**judge.row(one, self.box, fill, wanted, code), **more}
            for fill, one in filters.items()
        ]
        if self.box == "white":
            judge.draw_sheet(filters, trial.out / f"sheet-{wanted:g}.png")
        lost = ", ".join(f"{row['fill']} {row['loss_points']:.1f}" for row in found)
        trial.report(f"seed {trial.seed}, {self.box} box: points lost at {wanted:.0%}: {lost}")
        return found
