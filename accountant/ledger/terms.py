"""What a population fixes for all its runs, checked when it is made."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedlens.accountant.dp.filter import PrivacyFilter, default_order
from fedlens.accountant.events import Adjacency, Unit
from fedlens.foundation.errors import FedlensError, WrongUse

LEDGER = "ledger.jsonl"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""Of an attribute of users."""


class PopulationError(FedlensError, ValueError):
    """A population that cannot be used, or not by this run; the message says why."""


def fedlens_home() -> Path:
    """``$FEDLENS_HOME``; ``~/.fedlens`` by default.

    Raises:
        WrongUse: there is no such home: the account has none, or is in no list of users.
    """
    named = os.environ.get("FEDLENS_HOME", "~/.fedlens")
    try:
        return Path(named).expanduser()
    except RuntimeError:
        raise WrongUse(
            f"FEDLENS_HOME is {named} and there is no such home: set it to the folder in which "
            "fedlens keeps populations and runs"
        ) from None


def population_folder(named: str) -> Path:
    """The folder of a population: an absolute path, or a name under ``$FEDLENS_HOME``."""
    # an absolute path replaces what stands before it
    return fedlens_home() / "populations" / named


def ledger_in(folder: Path) -> Path:
    """The ledger of the population in a folder.

    Raises:
        PopulationError: there is none.
    """
    if not (folder / LEDGER).exists():
        raise PopulationError(
            f"there is no population in {folder}: `fedlens population create` makes one"
        )
    return folder / LEDGER


def _require(holds: bool, name: str, value: object, fix: str) -> None:
    if not holds:
        raise PopulationError(f"{name} = {value!r} cannot be used: {fix}")


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
    """Most that differential privacy's ε at ``delta`` may come to, over all runs, however the
    settings of each were chosen by the releases of earlier ones."""
    adjacency: Adjacency = "add-remove"
    """Between which data sets the guarantee holds: one user or record is there or not."""
    users: int = 0
    """How many enrolled users (silos at record level) there are; 0 where that was not said."""
    probe_epsilon: float = 0.0
    """Most that DP ε of all probes together may come to, which engineers spend by themselves; 0
    for no limit but the budget."""
    slices: str = ""
    """Public attribute of which every user has exactly one value for as long as the population
    lasts, such as ``app_version``: runs on slices by it compose in parallel. Empty: all add up."""
    order: float = 0.0
    """Rényi order α > 1 at which releases are admitted; 0 stands for `default_order`'s."""

    def __post_init__(self) -> None:
        text = isinstance(self.population, str) and self.population
        _require(bool(text), "population", self.population, "give it a name")
        _require(self.unit in ("user", "record"), "unit", self.unit, "'user' or 'record'")
        adjacency = self.adjacency
        _require(adjacency == "add-remove", "adjacency", adjacency, "it is 'add-remove'")
        delta, budget, users = self.delta, self.epsilon_budget, self.users
        _require(_real(delta) and 0 < delta < 1, "delta", delta, "give a probability in (0, 1)")
        _require(_real(budget) and budget > 0, "epsilon", budget, "give a finite number above 0")
        whole = isinstance(users, int) and not isinstance(users, bool)
        _require(whole and users >= 0, "users", users, "give a whole number ≥ 0")
        probes = self.probe_epsilon
        _require(_real(probes) and probes >= 0, "probes", probes, "give a finite number ≥ 0")
        named = isinstance(self.slices, str) and (not self.slices or NAME.fullmatch(self.slices))
        _require(bool(named), "slices", self.slices, "give a name of letters, digits and '_'")
        fix = f"make it at most 1/N for N = {users} users: a larger δ protects no one"
        _require(self.unit == "record" or users == 0 or delta <= 1 / users, "delta", delta, fix)
        _require(_real(self.order), "order", self.order, "give a number above 1")
        try:
            if self.order == 0:
                object.__setattr__(self, "order", default_order(budget, delta))
            PrivacyFilter(budget, delta, self.order)
        except WrongUse as error:
            raise PopulationError(str(error)) from None

    @property
    def filter(self) -> PrivacyFilter:
        """What decides which releases are granted, of whichever run."""
        return PrivacyFilter(self.epsilon_budget, self.delta, self.order)

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> PopulationTerms:
        """The terms in a ledger's header.

        Raises:
            PopulationError: it is not that of a population.
        """
        names = {item.name for item in fields(cls)}
        if set(header) == (names | {"id"}) - {"order"}:
            raise PopulationError(
                "is of a population without a filter, whose budget does not hold where a run's "
                "settings are chosen by earlier releases: make a new one with `fedlens population "
                "create`, of what its owner still wants to spend on the same people"
            )
        if set(header) != names | {"id"} or not header["order"]:
            raise PopulationError("is the ledger of something else than a population")
        return cls(**{name: header[name] for name in names})
