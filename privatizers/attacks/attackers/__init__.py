"""Attackers of released records, one line each: fresh ones are fitted at every point of a curve.

An attacker that only a filter's training met says nothing of the next one. So a filter is judged by
all of these, fitted on released records of people whom the filter never saw. Other packages add
attackers through entry points in the group ``fedlens.attackers``: anything that makes an `Attacker`
when it is called without arguments.
"""

from __future__ import annotations

from collections.abc import Callable

from fedlens.foundation.registry import Registry
from fedlens.privatizers.attacks.attackers.protocol import Attacker, AttackError, FittedAttacker

__all__ = [
    "ATTACKERS",
    "BLIND",
    "FRESH",
    "INFORMED",
    "STRONG",
    "AttackError",
    "Attacker",
    "FittedAttacker",
]

ATTACKERS: Registry[Callable[[], Attacker]] = Registry(
    "attacker",
    "fedlens.attackers",
    {
        "prior": "fedlens.privatizers.attacks.attackers.references:PriorAttacker",
        "side-information": "fedlens.privatizers.attacks.attackers.references:SideAttacker",
        "position": "fedlens.privatizers.attacks.attackers.references:position_attacker",
        "logistic": "fedlens.privatizers.attacks.attackers.references:LogisticAttacker",
        "trees": "fedlens.privatizers.attacks.attackers.references:TreesAttacker",
        "same": "fedlens.privatizers.attacks.attackers.networks:NetworkAttacker",
        "wide": "fedlens.privatizers.attacks.attackers.networks:wide_attacker",
        "residual": "fedlens.privatizers.attacks.attackers.decoding:residual_attacker",
        "features": "fedlens.privatizers.attacks.attackers.features:FeaturesAttacker",
        "likelihood": "fedlens.privatizers.attacks.attackers.likelihood:LikelihoodAttacker",
        "code": "fedlens.privatizers.attacks.attackers.everything:code_attacker",
        "decode": "fedlens.privatizers.attacks.attackers.everything:DecodeAttacker",
    },
)
"""What makes an attacker, not yet fitted; a formula (`formula.py`) is built with its rules."""
BLIND = ("prior", "side-information", "position")
"""Lines of reference: they know the classes' shares, what is told besides, the step of a series."""
INFORMED = ("likelihood", "code", "decode")
"""Attackers who have the filter: weights and noise law, and the first two the code itself."""
STRONG = ("residual", "features")
"""Attackers of releases that try harder than a filter's training adversary."""
FRESH = ("logistic", "trees", "same", "wide")  # Those of ours that look at the record
