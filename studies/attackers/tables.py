"""Attackers that read tables: how a classifier of rows answers for records and for steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.datasets.attributes.data import PrivateData
from studies.attackers.features import each_step, places, table
from studies.attackers.protocol import cautious


class Estimator(Protocol):
    """As much of a scikit-learn classifier as is used."""

    classes_: NDArray[np.int64]

    def predict_proba(self, rows: Any) -> NDArray[np.float64]:
        """Probabilities [n, seen classes] of rows [n, k]."""
        ...


@dataclass(frozen=True)
class View:
    """Which columns an attacker sees."""

    steps: bool  # a row for each step of a series, instead of each record
    record: bool = True  # the released record is seen; without it the side information alone
    position: bool = False  # without the record: which step of the series is asked for

    def __call__(self, records: Tensor, side: Tensor | None) -> Tensor:
        """Rows float32 [n, k], or [n * T, k] for steps."""
        if self.record:
            return table(records, side, steps=self.steps)
        if not self.steps:
            return records.new_zeros(len(records), 0) if side is None else side.flatten(1)
        known = [each_step(side, records), *([places(records)] if self.position else [])]
        return torch.cat(known, -1).flatten(0, 1)


@dataclass(frozen=True, eq=False)
class TableFitted:
    """A fitted classifier of rows, answering for records."""

    estimator: Estimator  # the classifier
    view: View  # how records become its rows
    classes: int  # number of classes; those that it never saw get the least probability

    def log_probabilities(self, records: Tensor, side: Tensor | None = None) -> Tensor:
        """See `FittedAttacker.log_probabilities`."""
        found = self.estimator.predict_proba(self.view(records, side).numpy())
        wide = torch.zeros(len(found), self.classes, dtype=torch.float64)
        wide[:, torch.from_numpy(np.asarray(self.estimator.classes_))] = torch.from_numpy(
            np.asarray(found, dtype=np.float64)
        )
        guesses = cautious(wide)
        return guesses.reshape(*records.shape[:2], -1) if self.view.steps else guesses


Grow = Callable[[NDArray[np.float32], NDArray[np.int64], int], Estimator]
"""Fits a classifier on rows float32 [n, k] and their classes int64 [n], with a seed."""


def fit_table(known: PrivateData, view: View, grow: Grow, most: int, seed: int) -> TableFitted:
    """A classifier fitted on at most ``most`` of the rows, drawn without replacement."""
    rows = view(known.records, known.side)
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most]
    truth = known.sensitive.flatten()[chosen].numpy()
    return TableFitted(grow(rows[chosen].numpy(), truth, seed), view, known.sensitive_classes)
