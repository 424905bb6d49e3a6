"""What an accountant answers, and checks that all of them share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedlens.foundation.errors import WrongUse

NO_ORDER = 0.0
MOST = 10**15
"""Counts above this are refused: nothing is released so often."""


@dataclass(frozen=True)
class Bound:
    """An upper bound on epsilon at the delta that was asked for."""

    epsilon: float
    """≥ 0; infinite where there is no guarantee."""
    order: float
    """Order of the moment that gave the bound (Rényi order α, or λ of the Bayesian accountant);
    `NO_ORDER` where none did: nothing spent, no finite bound, or a bound without orders."""
    method: str = ""
    """Which computation gave the bound, in a word; empty where there is only one."""

    def to_json(self) -> dict[str, float | str | None]:
        """As JSON values; null where there is no finite ε."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        return {"epsilon": epsilon, "order": self.order, "method": self.method}


NOTHING_SPENT = Bound(0.0, NO_ORDER)
UNBOUNDED = Bound(math.inf, NO_ORDER)


def require_probability(name: str, value: float) -> None:
    """Refuse what is not strictly between 0 and 1.

    Raises:
        WrongUse: naming the argument.
    """
    if not 0.0 < value < 1.0:
        raise WrongUse(f"{name} = {value!r} cannot be used: give a probability in (0, 1)")


def require_count(name: str, value: int) -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        WrongUse: naming the argument.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WrongUse(f"{name} = {value!r} cannot be used: give a whole number ≥ 1")
    if value > MOST:
        raise WrongUse(f"{name} is above {MOST:.0e} and cannot be used: give a smaller number")
