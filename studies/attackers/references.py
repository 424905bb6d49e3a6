"""Lines of reference: what is guessed without looking at the record."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from studies.attackers.protocol import FittedAttacker, cautious, count_classes
from studies.attackers.tables import TableFitted, View, some_rows
from studies.attackers.trees import ROWS, TreesAttacker


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

    def fit(
        self,
        records: Tensor,
        sensitive: Tensor,
        side: Tensor | None,
        seed: int,
        *,
        classes: int | None = None,
    ) -> FittedAttacker:
        """Count; see `Attacker.fit`."""
        found = count_classes(records, sensitive, side, classes)
        shares = torch.bincount(sensitive.flatten(), minlength=found)
        return _Constant(shares, sensitive.ndim == 2)


@dataclass(frozen=True)
class SideAttacker:
    """Sees the side information alone; boosted trees, since that is often categories in disguise.

    Without side information (and position) it knows what `PriorAttacker` knows.

    Attributes:
        position: it also knows which step of a series is asked for, as everybody does who has one:
            the hour of the day alone says much of whether somebody is at home.
    """

    position: bool = False

    def fit(
        self,
        records: Tensor,
        sensitive: Tensor,
        side: Tensor | None,
        seed: int,
        *,
        classes: int | None = None,
    ) -> FittedAttacker:
        """Learn from ``side``; see `Attacker.fit`."""
        found = count_classes(records, sensitive, side, classes)
        view = View(steps=sensitive.ndim == 2, record=False, position=self.position)
        rows, truth = some_rows(view(records, side), sensitive, ROWS, seed)
        if rows.shape[1] == 0:
            return PriorAttacker().fit(records, sensitive, None, seed, classes=found)
        return TableFitted(TreesAttacker().grow(rows, truth, seed), view, found)
