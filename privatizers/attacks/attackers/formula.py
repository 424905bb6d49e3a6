"""Attackers that compute: a data set whose sensitive attribute has a formula lends it to them.

Jafarzadeh Asl et al. 2023 calls this the true-class attacker (TCA): it applies the labelling rule
to released images
and needs no training but to see what the rule's answers mean after the filter. Where the rule
abstains ("normal"), the paper tries each reading and reports the best on the test images; here the
meaning of every answer is counted on the attacker's own released records, so the choice is not
made on what it is scored on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlens.data.attributes.thickness import row_widths, stroke_widths
from fedlens.data.registry import DATASETS
from fedlens.privatizers.attacks.attackers.protocol import (
    Attacker,
    AttackError,
    FittedAttacker,
    cautious,
    check_known,
)
from fedlens.privatizers.attacks.attackers.reading_nets import read_images
from fedlens.privatizers.private_data import PrivateData

THRESHOLDS = (-0.9, 0.0)  # Pixels above one of these count as ink
FINENESS, MOST = 5, 60
"""Answers in a pixel of stroke width, and the greatest of them."""
CHUNK = 500
FORMULA = "formula"
"""The name of the attacker that computes a source's attribute."""
Rule = Callable[[Tensor, Tensor | None], Tensor]
"""Released records [n, ...] and side information to answers: int64, the attribute's shape, each at
least 0; there may be more answers than classes ("cannot say")."""


@dataclass(frozen=True, eq=False)
class FormulaFitted:
    """A rule, and what its answers mean."""

    rule: Rule  # the formula
    # float64 [answers, classes], how common each sensitive attribute is behind an answer
    meaning: Tensor

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """See `FittedAttacker.log_probabilities`; an answer never seen says what the prior does."""
        answers = self.rule(records, side)
        last = len(self.meaning) - 1
        known = torch.where((answers >= 0) & (answers < last), answers, last)
        return cautious(self.meaning[known])


@dataclass(frozen=True)
class FormulaAttacker:
    """Applies the rule that fits the released records best."""

    rules: Sequence[Rule]  # formulas, such as one rule at several thresholds of what counts as ink

    def __post_init__(self) -> None:
        if not self.rules:
            raise AttackError("rules is empty; give the attribute's formula, or leave this one out")

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Count what each rule's answers mean and keep the one with the least cross-entropy."""
        check_known(known)
        fitted = [FormulaFitted(rule, _meaning(rule, known)) for rule in self.rules]
        return min(fitted, key=lambda one: _cross_entropy(one, known))


def _meaning(rule: Rule, known: PrivateData) -> Tensor:
    """Shares of the classes behind each answer, with one record at the prior's shares added."""
    sensitive, classes = known.sensitive, known.sensitive_classes
    answers = rule(known.records, known.side)
    if answers.shape != sensitive.shape or int(answers.min()) < 0:
        raise AttackError(
            f"a formula answers {tuple(answers.shape)} for attributes {tuple(sensitive.shape)}, or "
            "below 0; give one answer from 0 on for each sensitive attribute"
        )
    prior = torch.bincount(sensitive.flatten(), minlength=classes).double()
    cells = int(answers.max()) + 1
    counts = torch.bincount((answers * classes + sensitive).flatten(), minlength=cells * classes)
    table = counts.double().reshape(cells, classes) + prior / prior.sum()
    return torch.cat([table, prior[None]])


def _cross_entropy(fitted: FittedAttacker, known: PrivateData) -> float:
    guesses = fitted.log_probabilities(known.records, known.side)
    return -float(guesses.gather(-1, known.sensitive.unsqueeze(-1)).mean())


@dataclass(frozen=True, eq=False)
class InkFormula:
    """What the annotated-MNIST rule measures: the ink in the row of an image's digit."""

    reader: nn.Module  # network that reads the digit from a released image
    threshold: float  # pixels above it are ink

    @torch.no_grad()
    def __call__(self, records: Tensor, side: Tensor | None) -> Tensor:
        """The digit and its row's width as one answer, int64 [n]."""
        digits = torch.cat([self.reader(part).argmax(-1) for part in torch.split(records, CHUNK)])
        widths = row_widths((records > self.threshold).numpy(), digits.numpy())
        return torch.from_numpy(widths) * 10 + digits


@dataclass(frozen=True, eq=False)
class StrokeFormula:
    """Stroke width by distance transform, and the digit that it is compared among."""

    reader: nn.Module  # network that reads the digit from a released image
    ink: float = 0.0  # brightness from which on a pixel is ink, of pixels in [-1, 1]

    @torch.no_grad()
    def __call__(self, records: Tensor, side: Tensor | None) -> Tensor:
        """The digit and the width in fifths of a pixel as one answer, int64 [n]."""
        logits = torch.cat([self.reader(part) for part in torch.split(records, CHUNK)])
        images = ((records > self.ink) * 255).to(torch.uint8).numpy()
        widths = torch.from_numpy(stroke_widths(images))
        steps = (FINENESS * widths).round().long().clamp(0, MOST)
        return steps * logits.shape[-1] + logits.argmax(-1)


def formula_of(name: str, reader: nn.Module | None) -> Attacker | None:
    """The attacker that computes the attribute of a source; None where no formula is known.

    ``reader`` is a fresh network for the utility of the records that it is to attack.
    """
    kind = name.partition(":")[0]
    formula = DATASETS[kind].formula if kind in DATASETS else ""
    if formula == "coordinate":
        return FormulaAttacker([_second_coordinate])
    if reader is None:
        return None
    if formula == "ink":
        return FormulaAttacker([InkFormula(reader, threshold) for threshold in THRESHOLDS])
    if formula == "strokes":
        return FormulaAttacker([StrokeFormula(reader, ink) for ink in (-0.5, 0.0)])
    return None


def with_formula(
    attackers: Mapping[str, Attacker], attack: PrivateData, source: str, *, steps: int, seed: int
) -> dict[str, Attacker]:
    """The attackers and, as `FORMULA`, the one that computes the attribute of the source.

    A fresh network that reads the utility of ``attack`` serves it; without a formula there is none.
    """
    if formula_of(source, nn.Identity()) is None:  # before a network is trained for nothing
        return dict(attackers)
    formula = formula_of(source, read_images(attack, steps, seed))
    return {**attackers, **({} if formula is None else {FORMULA: formula})}


def _second_coordinate(records: Tensor, side: Tensor | None) -> Tensor:
    """Which corner of the mixture a point is nearest to, by its second coordinate."""
    return (records[:, 1] > 0.5).long()
