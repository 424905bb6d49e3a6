"""Attackers of released records, one line each: fresh ones are fitted at every point of a curve.

An attacker that only a filter's training met says nothing of the next one; so whoever judges a
filter fits all of these on released records of people the filter never saw.
"""

from __future__ import annotations

from collections.abc import Callable

from studies.attackers.logistic import LogisticAttacker
from studies.attackers.networks import NetworkAttacker
from studies.attackers.protocol import Attacker, AttackError, FittedAttacker
from studies.attackers.references import PriorAttacker, SideAttacker
from studies.attackers.trees import TreesAttacker

__all__ = ["ATTACKERS", "FRESH", "AttackError", "Attacker", "FittedAttacker", "build_attacker"]

ATTACKERS: dict[str, Callable[[], Attacker]] = {
    "prior": PriorAttacker,
    "side-information": SideAttacker,
    "position": lambda: SideAttacker(position=True),
    "logistic": LogisticAttacker,
    "trees": TreesAttacker,
    "same": NetworkAttacker,
    "wide": lambda: NetworkAttacker(width=2.0),
}
FRESH = ("logistic", "trees", "same", "wide")
"""Those that look at the record; the others are lines of reference."""


def build_attacker(name: str) -> Attacker:
    """The attacker ``name``, not yet fitted; a formula (`formula.py`) is built with its rules.

    Raises:
        AttackError: there is no such attacker.
    """
    if name not in ATTACKERS:
        raise AttackError(f"there is no attacker {name!r}; use one of {', '.join(ATTACKERS)}")
    return ATTACKERS[name]()
