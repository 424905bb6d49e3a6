"""What one filter is worth: who still reads the utility, and who reads the attribute, each afresh.

Attackers who have the filter come first. One reads its noisy code: no reader of a release can know
more than the best reader of the code, which that attacker estimates from below. Every other is
fitted on the *filtered* attack part, which no filter was trained on, and scored on the filtered
test part. Beside it stands the same attacker as fitted on raw records (*frozen*): it flatters a
filter, since a real attacker trains again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fedlens.privatizers.attacks.attack_runs import (
    CHUNK,
    build_attackers,
    normalised_error,
    released_parts,
    reweighted,
    shares_of,
)
from fedlens.privatizers.attacks.attackers import ATTACKERS, INFORMED, FittedAttacker
from fedlens.privatizers.attacks.attackers.formula import FORMULA, formula_of
from fedlens.privatizers.attacks.attackers.reading_nets import accuracy, read_images, read_points
from fedlens.privatizers.attacks.balanced import balanced_accuracy
from fedlens.privatizers.attacks.claims import ONE
from fedlens.privatizers.attacks.controls import read_controls
from fedlens.privatizers.attacks.filter_attack import (
    FULL,
    Effort,
    FilterAttack,
    attack_code,
    attack_filter,
    told,
)
from fedlens.privatizers.attacks.gate import LOOKS
from fedlens.privatizers.attacks.scores import score
from fedlens.privatizers.attacks.targets import target_of
from fedlens.privatizers.channels import channel_of
from fedlens.privatizers.classifiers import noise_shape_of
from fedlens.privatizers.export import example_inputs, latency_ms
from fedlens.privatizers.networks.information import InformationError, mutual_information
from fedlens.privatizers.private_data import PrivateData, Split
from fedlens_research.framework.trials import Report
from fedlens_research.metrics.fairness import FairnessError, fairness
from fedlens_research.tradeoff.certified import certify
from fedlens_research.tradeoff.points import IMAGES, SERIES, TrainedFilter, kind_of

RESAMPLES = 200
PRIOR, POSITION, SIDE = "prior", "position", "side-information"
"""Lines of reference: knows the classes' shares, also the step of a series, also what is told."""
FRESH_SEED = 104_729
"""Keeps fresh networks, and the noise of what they see, apart from those that were trained on."""


@dataclass(frozen=True)
class AttackFigures:
    """What one attacker reads; shares in [0, 1], nats, and 95% bootstrap intervals over owners."""

    # balanced accuracy, its answers divided by the classes' shares first, which is what that
    # measure rewards; 1 / classes for who knows nothing
    balanced: float
    low: float  # of the interval of ``balanced``
    high: float  # of it
    accuracy: float  # share of sensitive attributes guessed right, answers as they are
    leak: float  # H(S) less its cross-entropy: I(S;Q) is at least that, in expectation
    leak_low: float  # of the interval of ``leak``
    leak_high: float  # of it
    # balanced accuracy of the same attacker as fitted on raw records; None for raw ones, and for
    # attackers who have the filter
    frozen: float | None = None


@dataclass(frozen=True)
class FilterFigures:
    """All figures of one filter of one seed, or of no filter."""

    # what the service still gets: its network's accuracy, or for series 1 − NE, the normalised
    # squared error
    utility: float
    fresh: float | None  # accuracy of a fresh network fitted on released records; None for series
    attacks: Mapping[str, AttackFigures]  # by attacker
    certified: float | None = None  # I(X;Q) is at most that, nats; None where nothing is certified
    certified_for_any: bool = False  # for any records, not only those with the train covariance
    # of the service's answers between groups, by name; empty where undefined
    fairness: Mapping[str, float] = field(default_factory=dict)
    # of raw records: what is to be had without a filter, by what is sent: ``secret``, ``use``
    controls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # median time of the filter for one record on one CPU thread, ms; 0 without one
    latency: float = 0.0
    seconds: float = 0.0  # that training and measuring took

    def row(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)

    def reads(self) -> dict[str, float]:
        """Balanced accuracy of the strongest attacker, by what it sees."""
        found: dict[str, float] = {}
        for name, one in self.attacks.items():
            sees = seen_by(name)
            found[sees] = max(one.balanced, found.get(sees, 0.0))
        return found

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> FilterFigures:
        """Of a JSON object that :meth:`row` made."""
        attacks = {name: AttackFigures(**one) for name, one in row["attacks"].items()}
        return cls(**{**row, "attacks": attacks})


def seen_by(name: str) -> str:
    """What an attack of this name sees: ``code, ten alike`` near-duplicates, ``code`` a release."""
    return name.partition(", ")[2] or ONE


@dataclass(frozen=True, eq=False)
class FilterJudge:
    """What the filters of one seed are judged with."""

    split: Split  # the source's parts
    provider: nn.Module | None  # the service's network, trained on raw records; None for series
    names: tuple[str, ...]  # attackers by name; those who have the filter may be among them
    reading_steps: int  # of fresh networks for the utility
    attacker_steps: int  # of the networks among the attackers, at least
    group: Tensor | None  # int64 [test], a protected attribute; None takes the sensitive attribute
    seed: int  # of noise, attackers and bootstraps
    effort: Effort = FULL  # of attackers who have the filter
    sees: tuple[str, ...] = (ONE,)  # what these see: one release, near-duplicates, no noise
    tell: Report = lambda _: None  # is told how far it is

    @cached_property
    def shares(self) -> Tensor:
        """Of the classes of the sensitive attribute in the attack part, float64 [classes]."""
        return shares_of(self.split.attack)

    @cached_property
    def raw_reader(self) -> nn.Module | None:
        """A fresh network for the utility of raw records."""
        return self._fresh_reader(self.split.attack)

    @cached_property
    def raw_fitted(self) -> dict[str, FittedAttacker]:
        """The attackers as fitted on raw records."""
        return self._fit(self.split.attack, self.raw_reader)

    def raw(self) -> FilterFigures:
        """The lines of reference: raw records, and who does not look at them."""
        self.tell("raw records: their readers and attackers ...")
        test = self.split.test
        lines = {name: self._read(fitted, test) for name, fitted in self.raw_fitted.items()}
        blind = [PRIOR, *([SIDE] if test.side is not None else [])]
        if test.sensitive.ndim == 2:
            blind.append(POSITION)
        attack = self.split.attack
        for name in blind:
            lines[name] = self._read(ATTACKERS[name]().fit(attack, self.seed), test)
        found = self._figures(self.provider, self.raw_reader, lines, test)
        controls = read_controls(attack, test, FRESH_SEED + self.seed, steps=self.reading_steps)
        return replace(found, controls={one.sent: one.row() for one in controls})

    def measure(self, trained: TrainedFilter) -> FilterFigures:
        """All figures of a filter; the time that training took is the caller's to add."""
        self.tell(f"{trained.point.name}: readers and attackers of what is released ...")
        attack, test = released_parts(trained.filter, self.split, FRESH_SEED + 2 * self.seed)
        reader = self._fresh_reader(attack)
        attacks = {
            name: replace(
                self._read(fitted, test), frozen=self._read(self.raw_fitted[name], test).balanced
            )
            for name, fitted in self._fit(attack, reader).items()
        }
        inputs = example_inputs(trained.filter, self.split.test.records[0])
        if not noise_shape_of(trained.filter):
            inputs = (*inputs, inputs[0].new_zeros(1, 0))
        attacks = {**self._informed(trained.filter), **attacks}
        certified = certify(trained.filter, self.split.train.records)
        latency = latency_ms(trained.filter, inputs)
        found = self._figures(trained.reader, reader, attacks, test)
        return replace(
            found,
            certified=certified.nats,
            certified_for_any=certified.for_any,
            latency=latency,
        )

    def _informed(self, filter_: nn.Module) -> dict[str, AttackFigures]:
        """What attackers who have the filter read; nothing where it shows no code."""
        names = [name for name in self.names if name in INFORMED]
        if not names or channel_of(filter_) is None:
            return {}
        target = target_of(filter_, self.split, FRESH_SEED + self.seed)
        self.tell("attackers who have the filter ...")
        found = attack_filter(target, names, effort=self.effort, tell=self.tell)
        # as `attack` will look at the file, which could else find more than is claimed
        for name, sees in LOOKS:
            wanted = sees != ONE and sees in self.sees and name in names
            if wanted and (name == "code" or target.affine):
                found.append(attack_code(target, name, sees, self.effort))
                self.tell(told(found[-1]))
        return {one.name: _figures_of(one) for one in found}

    def _figures(
        self,
        reader: nn.Module | None,
        fresh: nn.Module | None,
        attacks: Mapping[str, AttackFigures],
        test: PrivateData,
    ) -> FilterFigures:
        """What the service's network and a fresh one read of the test part, and attackers."""
        known = None if fresh is None else accuracy(fresh, test.records, test.utility)
        if reader is None:
            return FilterFigures(1 - normalised_error(self.split.test, test), known, attacks)
        utility = accuracy(reader, test.records, test.utility)
        return FilterFigures(utility, known, attacks, fairness=self._fairness(reader, test))

    def _fit(self, attack: PrivateData, reader: nn.Module | None) -> dict[str, FittedAttacker]:
        fresh, formula = (
            build_attackers(
                [name for name in self.names if name not in INFORMED], self.attacker_steps
            ),
            formula_of(attack.name, reader),
        )
        every = fresh if formula is None else {**fresh, FORMULA: formula}
        fitted = {}
        for name, one in every.items():
            self.tell(f"  {name} learns, from {len(attack)} records ...")
            fitted[name] = one.fit(attack, FRESH_SEED + self.seed)
        return fitted

    def _read(self, fitted: FittedAttacker, test: PrivateData) -> AttackFigures:
        guesses = fitted.log_probabilities(test.records, test.side)
        truth, owners = test.sensitive, test.owners
        plain = score(guesses, truth, seed=self.seed, owners=owners, resamples=RESAMPLES)
        fair = balanced_accuracy(reweighted(guesses, self.shares).argmax(-1), test, self.seed)
        leak = plain.leak_lower_bound, *plain.leak_interval
        return AttackFigures(*fair, plain.accuracy, *leak)

    def _fresh_reader(self, attack: PrivateData) -> nn.Module | None:
        kind, seed = kind_of(attack), FRESH_SEED + self.seed
        if kind == SERIES:
            return None
        read = read_images if kind == IMAGES else read_points
        return read(attack, self.reading_steps, seed)

    @torch.no_grad()
    def _fairness(self, reader: nn.Module, test: PrivateData) -> dict[str, float]:
        answers = torch.cat([reader(part).argmax(1) for part in torch.split(test.records, CHUNK)])
        group = test.sensitive if self.group is None else self.group
        try:
            return fairness(answers, test.utility, group).row()
        except FairnessError:  # say, a digit is always or never above 5
            return {}


def _figures_of(one: FilterAttack) -> AttackFigures:
    """The figures of an attacker who has the filter; on raw records there is no such one."""
    ends = one.nats, one.nats_low, one.nats_high
    return AttackFigures(one.balanced, one.low, one.high, one.accuracy, *ends)


def least_sum_of(data: PrivateData) -> float | None:
    """K = I(U;S) from the labels' counts, nats, where records determine both labels.

    Then I(U;S|X) = 0, and no filter has A + B below K (Bertran et al. 2019, Lemma 3.1): a filter
    that keeps all of the utility leaks K at least. None for series, whose utility is the record.
    """
    if data.utility_classes < 2 or data.sensitive.ndim != 1:
        return None
    cells = data.utility * data.sensitive_classes + data.sensitive
    size = data.utility_classes * data.sensitive_classes
    counts = torch.bincount(cells, minlength=size).double()
    joint = counts.reshape(data.utility_classes, data.sensitive_classes) / counts.sum()
    try:
        return max(0.0, float(mutual_information(joint)))
    except InformationError:
        return None
