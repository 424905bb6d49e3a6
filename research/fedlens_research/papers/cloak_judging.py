"""What study ``cloak`` measures of a filter, on test images and by fresh attackers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from fedlens.foundation.tables import Row
from fedlens.privatizers.attacks.attack_runs import released
from fedlens.privatizers.attacks.attackers import ATTACKERS, FittedAttacker
from fedlens.privatizers.attacks.claims import Claims
from fedlens.privatizers.attacks.controls import Control
from fedlens.privatizers.attacks.gate import controls_of, judge_code
from fedlens.privatizers.attacks.scores import attack, judge
from fedlens.privatizers.attacks.targets import target_of
from fedlens.privatizers.export import example_inputs, latency_ms
from fedlens.privatizers.networks.information import gaussian_information_bound
from fedlens.privatizers.networks.masks import Fill, MaskFilter
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens.simulations.students.students import predict
from fedlens_research.framework.charts import plot_sheet
from fedlens_research.metrics.fairness import fairness
from fedlens_research.metrics.indices import ite_style_index
from fedlens_research.papers.cloak_training import CloakSettings

PAPER_RAW = {"mnist-greater5": 0.9929, "embedded-mnist-greater5": 0.9929}
"""Of the LeNet of Mireshghallah et al. on raw MNIST, by source: of other records they say nothing
here. Their curves are pictures without numbers."""
HALVINGS = 60
SHOWN = 10
INDEXED = ("trained", "noise")


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
        return released(filter_, part, 7919 * self.seed + draw, chunk=1000)

    def code(self, filter_: MaskFilter) -> tuple[Row, Claims]:
        """What the kept pixels tell, and what that claims."""
        target = target_of(filter_, self.data, self.seed)
        return judge_code(target, self.settings.code_steps, self.seed, self.controls)

    @cached_property
    def controls(self) -> list[Control]:
        """What is to be had without any filter."""
        return controls_of(target_of(nn.Identity(), self.data, self.seed), self.settings.code_steps)

    def row(self, filter_: MaskFilter, box: str, fill: Fill, ratio: float, code: Row) -> Row:
        """All figures of a filter; attackers, ``code`` and latency of the trained fill alone.

        The index is of the trained fill and of what only has noise, of which the paper states it.
        """
        repeats = range(self.settings.repeats)
        draws = [self.released(filter_, self.data.test, draw) for draw in repeats]
        accuracy = sum(self.accuracy(drawn.records) for drawn in draws) / len(draws)
        row = {
            **self.base(box, fill, accuracy),
            "suppressed": filter_.ratio if fill != "noise" else 0.0,
            "path_ratio": ratio,
            "bound_nats": self.bound(filter_),
            **self.fairness(draws[0].records),
        }
        if fill in INDEXED:
            row |= self.index(draws[0].records)
        if fill == "trained":
            row |= self.latency(filter_)
            row |= self.attacks(self.released(filter_, self.attack_part, 101), draws[0])
            row |= code
        return row

    def base(self, box: str, fill: str, accuracy: float) -> Row:
        """What every row says."""
        lost = 100 * (self.raw_accuracy - accuracy)
        head: Row = {"seed": self.seed, "box": box, "fill": fill, "accuracy": accuracy}
        return {**head, "loss_points": lost, "paper_accuracy": None}

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
        return dict(fairness(answers, self.data.test.utility, self.group).row())

    def attacks(self, known: PrivateData, shown: PrivateData) -> Row:
        """Balanced accuracy of every attacker, frozen and retrained, the best of each, the leak."""
        row: Row = {}
        best = {"attack_frozen": 0.0, "attack_retrained": 0.0, "leak_at_least": -math.inf}
        for name in self.settings.attackers:
            found = attack(ATTACKERS[name](), known, shown, self.seed)
            row[f"leak_{name}_low"] = found.leak_interval[0]
            values = {
                "attack_frozen": judge(self.frozen[name], shown, self.seed).balanced_accuracy,
                "attack_retrained": found.balanced_accuracy,
                "leak_at_least": found.leak_lower_bound,
            }
            for key, value in values.items():
                row[f"{key.removesuffix('_at_least')}_{name}"] = value
                best[key] = max(best[key], value)
        return row | best

    def latency(self, filter_: MaskFilter) -> Row:
        """Median ms of a record on one CPU thread: the filter, and the service's own network."""
        example = self.data.test.records[0]
        own = latency_ms(filter_, example_inputs(filter_, example))
        service = latency_ms(self.provider, (example[None],))
        return {"ms": own, "service_ms": service}

    def index(self, records: Tensor) -> Row:
        """The ITE-style index, never a headline."""
        many = self.settings.index_records
        found = ite_style_index(self.data.test.records[:many], records[:many], seed=self.seed)
        return {"ite_style_loss": found.loss, "ite_records": found.records}

    def draw_sheet(self, filters: Mapping[Fill, MaskFilter], path: Path) -> None:
        """A test image of each class of the attribute, raw and as each filter sends it."""
        test = self.data.test
        classes = torch.unique(test.sensitive)[:SHOWN]
        some = test.take(torch.stack([(test.sensitive == one).nonzero()[0, 0] for one in classes]))
        sent = {str(name): released(one, some, self.seed).records for name, one in filters.items()}
        plot_sheet({"raw": some.records} | sent, path, limits=(test.low, test.high))


def raw_row(judge_: CloakJudge) -> Row:
    """The line of reference: nothing is filtered."""
    test = judge_.data.test
    row = judge_.base("raw", "raw", judge_.raw_accuracy)
    row["paper_accuracy"], row["suppressed"] = PAPER_RAW.get(judge_.settings.source), 0.0
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
        row |= judge_.index(noisy.records)
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
