"""What a population fixes for all its runs, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from accountant.events import Adjacency, Unit
from foundation.errors import FedlensError


class PopulationError(FedlensError, ValueError):
    """A population that cannot be used, or not by this run; the message says why."""


def _require(holds: bool, name: str, value: object, mend: str) -> None:
    if not holds:
        raise PopulationError(f"{name} = {value!r} cannot be used: {mend}")


def _real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class PopulationTerms:
    """What a population's ledger fixes for all its runs, once and for all."""

    population: str
    """What people call it."""
    unit: Unit
    """Whose presence is hidden. User and record level are never added up."""
    delta: float
    """δ that the budget is stated at."""
    epsilon_budget: float
    """Most that differential privacy's ε at ``delta`` may come to, over all runs."""
    adjacency: Adjacency = "add-remove"
    """Between which data sets the guarantee holds."""
    users: int = 0
    """How many enrolled users (silos at record level) there are; 0 where that was not said."""

    def __post_init__(self) -> None:
        text = isinstance(self.population, str) and self.population
        _require(bool(text), "population", self.population, "give it a name")
        _require(self.unit in ("user", "record"), "unit", self.unit, "'user' or 'record'")
        known = self.adjacency in ("add-remove", "replace-one")
        _require(known, "adjacency", self.adjacency, "'add-remove' or 'replace-one'")
        delta, budget, users = self.delta, self.epsilon_budget, self.users
        _require(_real(delta) and 0 < delta < 1, "delta", delta, "give a probability in (0, 1)")
        _require(_real(budget) and budget > 0, "epsilon", budget, "give a finite number above 0")
        whole = isinstance(users, int) and not isinstance(users, bool)
        _require(whole and users >= 0, "users", users, "give a whole number ≥ 0")
        mend = f"make it at most 1/N for N = {users} users: a larger δ protects no one"
        _require(self.unit == "record" or users == 0 or delta <= 1 / users, "delta", delta, mend)

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> PopulationTerms:
        """The terms in a ledger's header.

        Raises:
            PopulationError: it is not that of a population.
        """
        names = {item.name for item in fields(cls)}
        if set(header) != names | {"id"}:
            raise PopulationError("is the ledger of something else than a population")
        return cls(**{name: header[name] for name in names})
