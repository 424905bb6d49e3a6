"""What study ``cloak`` measures of a filter, on test images and by fresh attackers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from client.datasets.attributes.data import PrivateData, Split
from privatizers.export import release
from privatizers.networks.information import gaussian_information_bound
from privatizers.networks.masks import MaskFilter
from simulations.students.students import predict
from studies.attackers import ATTACKERS, FittedAttacker
from studies.framework.tables import Row
from studies.metrics.fairness import fairness
from studies.metrics.indices import ite_style_index
from studies.metrics.scores import attack, judge
from studies.papers.cloak_settings import CloakSettings

PAPER_RAW = 0.9929
"""Of the LeNet of Mireshghallah et al. on raw MNIST; their curves are pictures without numbers."""
HALVINGS = 60


class Uniform(nn.Module):
    """Noise of one deviation on every entry: what a mask is compared with."""

    def __init__(self, shape: tuple[int, ...], sigma: float) -> None:
        super().__init__()
        self.noise_shape, self.sigma = shape, sigma

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Records with noise."""
        return records + self.sigma * noise


@dataclass(frozen=True, eq=False)
class CloakJudge:
    """What filters are judged with."""

    settings: CloakSettings  # the study's
    # attackers learn on the released attack part, everything is scored on the test part
    data: Split
    group: Tensor  # int64 [test], the protected attribute
    provider: nn.Module  # the network that is used, whatever a filter was trained with
    seed: int  # of noise and attackers

    @cached_property
    def attack_part(self) -> PrivateData:
        """The records that attackers are fitted on."""
        return self.data.attack.take(slice(0, self.settings.attack_records))

    @cached_property
    def frozen(self) -> dict[str, FittedAttacker]:
        """Attackers fitted on raw records."""
        part = replace(self.attack_part, side=None)
        return {name: ATTACKERS[name]().fit(part, self.seed) for name in self.settings.attackers}

    @cached_property
    def covariance(self) -> Tensor:
        """Of the flattened train records, float64 [d, d]: what the Gaussian bound rests on."""
        return torch.cov(self.data.train.records.flatten(1).double().T)

    @cached_property
    def raw_accuracy(self) -> float:
        """The provider's on raw test records."""
        return self.accuracy(self.data.test.records)

    def accuracy(self, records: Tensor) -> float:
        """The provider's."""
        right = predict(self.provider, records).argmax(1) == self.data.test.utility
        return float(right.double().mean())

    def released(self, filter_: nn.Module, part: PrivateData, draw: int) -> PrivateData:
        """A part with fresh noise in place of its raw records."""
        source = torch.Generator().manual_seed(7919 * self.seed + draw)
        return replace(
            part,
            records=torch.cat(
                [release(filter_, some, source) for some in torch.split(part.records, 1000)]
            ),
        )

    def row(self, filter_: MaskFilter, box: str, fill: str, ratio: float, *, attacked: bool) -> Row:
        """All figures of a filter; attackers and index only where ``attacked``."""
        draws = [
            self.released(filter_, self.data.test, draw) for draw in range(self.settings.repeats)
        ]
        accuracy = sum(self.accuracy(drawn.records) for drawn in draws) / len(draws)
        row = self.base(box, fill, accuracy)
        row["suppressed"] = filter_.ratio if fill != "noise" else 0.0
        row["path_ratio"] = ratio
        row["bound_nats"] = self.bound(filter_)
        row |= self.fairness(draws[0].records)
        if attacked:
            row |= self.attacks(self.released(filter_, self.attack_part, 101), draws[0])
            row |= self.index(draws[0].records)
        return row

    def base(self, box: str, fill: str, accuracy: float) -> Row:
        """What every row says."""
        return {
            "seed": self.seed,
            "box": box,
            "fill": fill,
            "accuracy": accuracy,
            "loss_points": 100 * (self.raw_accuracy - accuracy),
            "paper_accuracy": None,
        }

    def bound(self, filter_: MaskFilter) -> float:
        """The most that what is sent tells of the record, nats: kept entries with their noise.

        Certified for records with the train part's covariance, of which it is an estimate.
        """
        kept = filter_.keep.flatten()
        sigma = filter_.sigma.flatten()[kept]
        return float(gaussian_information_bound(self.covariance[kept][:, kept], sigma))

    def fairness(self, records: Tensor) -> Row:
        """Of the provider's answers between groups."""
        answers = predict(self.provider, records).argmax(1)
        found = fairness(answers, self.data.test.utility, self.group)
        return dict(found.row())

    def attacks(self, known: PrivateData, shown: PrivateData) -> Row:
        """Balanced accuracy of every attacker, frozen and retrained, the best of each, the leak."""
        row: Row = {}
        leaks = []
        for name in self.settings.attackers:
            found = attack(ATTACKERS[name](), known, shown, self.seed)
            row[f"attack_retrained_{name}"] = found.balanced_accuracy
            row[f"leak_{name}"], row[f"leak_{name}_low"] = (
                found.leak_lower_bound,
                found.leak_interval[0],
            )
            leaks.append(found.leak_lower_bound)
            row[f"attack_frozen_{name}"] = judge(
                self.frozen[name], shown, self.seed
            ).balanced_accuracy
        for kind in ("frozen", "retrained"):
            row[f"attack_{kind}"] = max(
                float(row[f"attack_{kind}_{name}"] or 0) for name in self.settings.attackers
            )
        row["leak_at_least"] = max(leaks)
        return row

    def index(self, records: Tensor) -> Row:
        """The ITE-style index, never a headline."""
        many = self.settings.index_records
        found = ite_style_index(self.data.test.records[:many], records[:many], seed=self.seed)
        return {"ite_style_loss": found.loss, "ite_records": found.records}


def raw_row(judge_: CloakJudge) -> Row:
    """The line of reference: nothing is filtered."""
    test = judge_.data.test
    row = judge_.base("raw", "raw", judge_.raw_accuracy)
    row["paper_accuracy"], row["suppressed"] = PAPER_RAW, 0.0
    return row | judge_.fairness(test.records) | judge_.attacks(judge_.attack_part, test)


def uniform_rows(judge_: CloakJudge, rows: list[Row]) -> list[Row]:
    """Uniform noise with the Gaussian bound of each trained white-box mask, and of plain noise."""
    found = []
    for other in rows:
        if other["box"] != "white" or other["fill"] not in ("trained", "noise"):
            continue
        sigma = sigma_of_bound(judge_.covariance, float(other["bound_nats"] or 0))
        noisy = judge_.released(Uniform(judge_.data.test.shape, sigma), judge_.data.test, 0)
        row = judge_.base("uniform", f"as {other['fill']}", judge_.accuracy(noisy.records))
        row |= judge_.fairness(noisy.records)
        row |= {name: other[name] for name in ("suppressed", "path_ratio", "bound_nats")}
        found.append({**row, "sigma": sigma})
    return found


def sigma_of_bound(covariance: Tensor, bound: float) -> float:
    """σ of uniform noise with a Gaussian bound of ``bound`` nats, by halving its logarithm."""
    values = torch.linalg.eigvalsh(covariance).clamp_min(0)
    low, high = -20.0, 20.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        sigma = torch.tensor(middle, dtype=torch.float64).exp()
        reached = float(torch.log1p(values / sigma.square()).sum() / 2)
        low, high = (middle, high) if reached > bound else (low, middle)
    return float(torch.tensor(high, dtype=torch.float64).exp())
