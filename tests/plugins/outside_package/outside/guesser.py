"""An attacker: it says the same of every record."""

from __future__ import annotations

from fedlens.privatizers.attacks.attackers.references import PriorAttacker


class GuessingAttacker(PriorAttacker):
    """The most frequent value, whatever it sees."""
