"""How far a run is, for those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedlens.accountant.account import Spending


@dataclass(frozen=True)
class Progress:
    """How far a run is, for displays."""

    round: int
    rounds: int
    share: float
    """Share of the present round's generator steps that are done."""
    whole: float
    """Share of the run's expected work that is done, for the time that is left."""
    spending: Spending


Observer = Callable[[Progress], None]
