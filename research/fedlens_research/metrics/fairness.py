"""How a service's answers differ between groups: demographic parity and equalised odds.

A filter that hides a protected attribute can make answers fairer or less fair; which, is measured
before and after. Figures are differences of shares in [0, 1]; 0 is equal treatment.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from fedlens.privatizers.private_data import PrivateDataError


class FairnessError(PrivateDataError):
    """Groups that cannot be compared; the message says the fix."""


@dataclass(frozen=True)
class Fairness:
    """Differences between groups, with the greatest over pairs of groups (and over answers)."""

    demographic_parity: float  # of P(answer | group)
    equalized_odds_worst: float  # of P(answer | group, truth), the worst truth
    equalized_odds_mean: float  # the same, mean over truths
    # the same, summed over truths (Mireshghallah et al.'s; twice the mean for two)
    equalized_odds_sum: float

    def row(self) -> dict[str, float]:
        """By name."""
        return asdict(self)


def fairness(answers: Tensor, truth: Tensor, group: Tensor) -> Fairness:
    """Compare the answers that groups get.

    Args:
        answers: int64 [n], what the service says; of two classes 1 is compared, of more each.
        truth: int64 [n], what is so.
        group: int64 [n], the protected attribute.

    Raises:
        FairnessError: lengths differ, there is one group only, or one has no record of some truth.
    """
    if not len(answers) == len(truth) == len(group) or len(answers) == 0:
        raise FairnessError(
            f"{len(answers)} answers, {len(truth)} truths and {len(group)} groups; give as many"
        )
    groups = torch.unique(group).tolist()
    if len(groups) < 2:
        raise FairnessError("all records are of one group; give at least two to compare")
    classes = int(max(answers.max(), truth.max())) + 1
    compared = [1] if classes <= 2 else list(range(classes))
    everybody = torch.ones_like(truth, dtype=torch.bool)
    odds = [
        max(_spread(answers == one, group, groups, truth == value) for one in compared)
        for value in torch.unique(truth).tolist()
    ]
    return Fairness(
        demographic_parity=max(
            _spread(answers == one, group, groups, everybody) for one in compared
        ),
        equalized_odds_worst=max(odds),
        equalized_odds_mean=sum(odds) / len(odds),
        equalized_odds_sum=sum(odds),
    )


def _spread(hit: Tensor, group: Tensor, groups: list[int], among: Tensor) -> float:
    """Greatest difference between groups of the share of hits, among some records."""
    shares = []
    for one in groups:
        own = among & (group == one)
        if not bool(own.any()):
            raise FairnessError(
                f"group {one} has no record of one of the truths, so its rate is unknown; give "
                "more records or leave the group out"
            )
        shares.append(float(hit[own].double().mean()))
    return max(shares) - min(shares)
