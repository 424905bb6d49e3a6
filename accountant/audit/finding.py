"""What an audit found, what it could have found at most, and how sure an alarm must be.

Several tests look at each task of a run, so each alarm has its own small chance of being false; the
chance that any of them is false is at most their sum (`false_alarm_bound`). Figures for people are
given at the confidence that was asked for (95% by default), which by itself would raise a false
alarm in one audit of twenty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fedlens.foundation.json_values import json_value

AuditKind = Literal["clipping", "sampling", "one-run", "one-shot", "noise", "membership"]
AuditVerdict = Literal["alarm", "nothing-found", "cannot-detect"]

BOUND_ERROR = 5e-4
"""Allowed error of a *lower bound* that raises an alarm (one-run of a task, membership). Gaussian
mechanisms are far from attaining either bound, so false alarms are much rarer still: to refute a
correct one of ε = 2 takes 191 right guesses of 200, where 142 ± 6 are expected."""
ESTIMATE_ERROR = 1e-5
"""Allowed error of the one-shot *estimate*, which sits at the truth where all users take part."""
TEST_ERROR = 1e-6
"""Allowed error of each exact test (noise, sampling): they have power to spare."""
EXACT_TESTS = 24
"""Of one task at most: of its noise and that of its norms, of its cohorts, and of its noise beside
another task's."""


def false_alarm_bound(tasks: int, *, membership: bool = True) -> float:
    """The largest chance that an audit of correct code raises any alarm.

    Args:
        tasks: how many are audited.
        membership: whether what was released is attacked too.
    """
    each = BOUND_ERROR + ESTIMATE_ERROR + EXACT_TESTS * TEST_ERROR
    return tasks * each + BOUND_ERROR * membership


@dataclass(frozen=True)
class Finding:
    """One audit's outcome.

    ``alarm`` says that the release contradicts the claim. ``nothing-found`` says that this attack
    did not contradict it; it is no proof. ``cannot-detect`` says that this attack could not have
    contradicted the claim, whatever the code does.
    """

    kind: AuditKind
    claimed_epsilon: float
    """Upper bound by the accountant for the schedule that was audited, at ``delta``."""
    delta: float
    verdict: AuditVerdict
    words: str
    """What that means, in a sentence or two."""
    task: str = ""
    """Which task was audited; empty where it is the run as a whole."""
    lower_bound: float | None = None
    """ε that the mechanism exceeds, with the confidence asked for; None where there is none."""
    estimate: float | None = None
    """ε under a model of the scores or the noise: no bound; None where there is none."""
    interval: tuple[float, float] | None = None
    """Confidence interval of the estimate, under the same model."""
    cap: float | None = None
    """The largest ε that an alarm could have been raised at; None where there is no such limit."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Everything else that was measured, by name."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; an infinite number is null."""
        record: dict[str, Any] = json_value(asdict(self))
        return record
