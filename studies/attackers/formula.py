"""Attackers that compute: a data set whose sensitive attribute has a formula lends it to them.

Jafarzadeh Asl et al. 2023 calls this the true-class attacker (TCA): it applies the labelling rule
to released images
and needs no training but to see what the rule's answers mean after the filter. Where the rule
abstains ("normal"), the paper tries each reading and reports the best on the test images; here the
meaning of every answer is counted on the attacker's own released records, so the choice is not
made on what it is scored on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from client.datasets.attributes.data import PrivateData
from studies.attackers.protocol import AttackError, FittedAttacker, cautious, check_known

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
