"""Attackers that read tables: how a classifier of rows answers for records and for steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fedlens.privatizers.attacks.attackers.protocol import cautious
from fedlens.privatizers.private_data import PrivateData

SIDE = 32  # Larger images are averaged down to at most this many pixels a side
REACH = 2  # Steps to each side of a step of a series that its row shows


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


def table(records: Tensor, side: Tensor | None, *, steps: bool) -> Tensor:
    """One row of features for each attribute: float32 [n, k], or [n * T, k] where ``steps``.

    A record's row has all its entries (images above 32 x 32 are averaged down) and its side
    information. A step's row has the entries of the `REACH` steps before and after it too (zeros
    outside the series), its place in the series as 0..1 and as hour-like sine and cosine, and
    its side information.
    """
    if steps:
        return torch.cat(
            [_windows(records), places(records), each_step(side, records)], -1
        ).flatten(0, 1)
    if records.ndim == 4 and max(records.shape[2:]) > SIDE:
        height, width = (min(SIDE, edge) for edge in records.shape[2:])
        records = F.adaptive_avg_pool2d(records, (height, width))
    known = records.new_zeros(len(records), 0) if side is None else side.flatten(1)
    return torch.cat([records.flatten(1), known], 1)


def places(records: Tensor) -> Tensor:
    """Where each step of series [n, T, c] stands: float32 [n, T, 3]."""
    steps = records.shape[1]
    share = torch.arange(steps, dtype=torch.float32) / steps
    angle = 2 * torch.pi * share
    return torch.stack([share, angle.sin(), angle.cos()], 1).expand(len(records), -1, -1)


def _windows(records: Tensor) -> Tensor:
    padded = F.pad(records, (0, 0, REACH, REACH))
    return padded.unfold(1, 2 * REACH + 1, 1).flatten(2)


def each_step(side: Tensor | None, records: Tensor) -> Tensor:
    """Side information of every step of series [n, T, c]: float32 [n, T, k], k = 0 for none."""
    if side is None:
        return records.new_zeros(*records.shape[:2], 0)
    if side.ndim == 3:
        return side
    return side.unsqueeze(1).expand(-1, records.shape[1], -1)


def beside(records: Tensor, side: Tensor | None) -> Tensor:
    """Records with their side information in the same tensor, as networks take it.

    Constant planes of images, further channels of series, further columns of points.
    """
    if side is None:
        return records
    if records.ndim == 4:
        planes = side[:, :, None, None].expand(-1, -1, *records.shape[2:])
        return torch.cat([records, planes], 1)
    if records.ndim == 3:
        return torch.cat([records, each_step(side, records)], -1)
    return torch.cat([records.flatten(1), side], 1)
