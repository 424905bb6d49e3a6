"""Lines of reference: what is guessed without looking at the record."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlens.privatizers.attacks.attackers.protocol import FittedAttacker, cautious, check_known
from fedlens.privatizers.attacks.attackers.shallow import ROWS, TreesAttacker
from fedlens.privatizers.attacks.attackers.tables import View, fit_table
from fedlens.privatizers.private_data import PrivateData


@dataclass(frozen=True, eq=False)
class _Constant:
    shares: Tensor
    steps: bool

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """The classes' shares, whatever the record."""
        rows = records.shape[:2] if self.steps else records.shape[:1]
        return cautious(self.shares).expand(*rows, -1)


class PriorAttacker:
    """Knows nothing but how common each class is; its balanced accuracy is 1 / classes."""

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Count; see `Attacker.fit`."""
        check_known(known)
        shares = torch.bincount(known.sensitive.flatten(), minlength=known.sensitive_classes)
        return _Constant(shares, known.sensitive.ndim == 2)


@dataclass(frozen=True)
class SideAttacker:
    """Sees the side information alone; boosted trees, since that is often categories in disguise.

    Without side information (and position) it knows what `PriorAttacker` knows.
    """

    # it also knows which step of a series is asked for, as everybody does who has one: the hour of
    # the day alone says much of whether a person is at home
    position: bool = False

    def fit(self, known: PrivateData, seed: int) -> FittedAttacker:
        """Learn from ``side``; see `Attacker.fit`."""
        check_known(known)
        steps = known.sensitive.ndim == 2
        if known.side is None and not (steps and self.position):
            return PriorAttacker().fit(known, seed)
        view = View(steps=steps, record=False, position=self.position)
        return fit_table(known, view, TreesAttacker().grow, ROWS, seed)


def position_attacker() -> SideAttacker:
    """Knows the side information, and which step of a series is asked for."""
    return SideAttacker(position=True)
