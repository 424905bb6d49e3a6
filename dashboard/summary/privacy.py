"""Privacy figures in words. Both accountants always speak together, each with its δ.

Differential privacy (DP) holds for anyone, whatever their data. Bayesian differential privacy
(BDP; Triastcyn & Faltings, arXiv:2003.00997) is an average over people like those enrolled, made of
noised norms that the run has released. A BDP figure alone would promise an unusual person too much,
so no function here gives one alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedlens.accountant.wording import shown
from fedlens.store import BatchRecord, RoundRecord

NOT_PRIVATE = "NOT PRIVATE"
NOT_PRIVATE_MEANING = (
    "This run added no noise, or noise from a fixed seed. It protects no one: "
    "use it only with data that may be public."
)
ASSUMPTIONS = (
    "**DP**: bounds what anyone learns about **any** person, whatever their data; it fails with "
    "probability at most δ. **BDP** (Bayesian accountant): bounds the same for a person **drawn "
    "like those enrolled**; an unusual person may be protected less. It is computed from noised "
    "norms, inside the DP guarantee. *Sound* is what is proved: DP's ε, or the budget of a filter "
    "that was declared beforehand; *corrected* is an estimate and presumes norms that do not react "
    "to releases; *as published* follows the paper's formulas, to compare with its tables, and "
    "bounds nothing. Smaller ε is more private."
)

SO_FAR = (
    "The run has not said that it ended: these figures are of the rounds so far, a bound only if "
    "when it ends is not decided by looking at what it releases. Ended early, it has those of its "
    "whole plan."
)


Spent = RoundRecord | BatchRecord
"""What has cost something: a round, or a batch of samples."""


class SpentBound(NamedTuple):
    """One figure of what was spent."""

    name: str
    """Which, as columns and metrics are headed."""
    epsilon: float
    delta: float


def bounds(spent: Spent) -> tuple[SpentBound, ...]:
    """All figures, each with its δ: DP, then BDP sound, corrected and as published."""
    return (
        SpentBound("DP ε", spent.dp_epsilon, spent.delta_dp),
        SpentBound("BDP ε sound", spent.bdp_sound, spent.delta_bdp),
        SpentBound("BDP ε corrected", spent.bdp_corrected, spent.delta_bdp),
        SpentBound("BDP ε as published", spent.bdp_as_published, spent.delta_bdp),
    )


def epsilon_text(value: float) -> str:
    """An ε with three significant digits, rounded up; ``∞`` where there is no finite bound."""
    if math.isinf(value):
        return "∞"
    return f"{math.ceil(value):,}" if value >= 1000 else shown(value)


def delta_text(value: float) -> str:
    """A δ in short, as ``1e-05``, rounded up."""
    return shown(value)


def figures(spent: Spent) -> str:
    """All figures in one line, each with its δ."""
    return (
        f"DP ε = {epsilon_text(spent.dp_epsilon)} (δ = {delta_text(spent.delta_dp)}) · "
        f"BDP ε = {epsilon_text(spent.bdp_sound)} sound, "
        f"{epsilon_text(spent.bdp_corrected)} corrected, "
        f"{epsilon_text(spent.bdp_as_published)} as published "
        f"(δ = {delta_text(spent.delta_bdp)})"
    )


def series_names(spent: Spent) -> list[str]:
    """Legend entries for DP, BDP sound, corrected and as published, each with its δ."""
    named = [(one.name.replace(" ε", ""), delta_text(one.delta)) for one in bounds(spent)]
    return [f"{'DP, any person' if name == 'DP' else name} (δ = {at})" for name, at in named]
