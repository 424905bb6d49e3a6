"""Balanced accuracy and its interval: what attackers of rare classes are to be judged by."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedlens.privatizers.attacks.scores import by_owner
from fedlens.privatizers.private_data import PrivateData

CONFIDENCE = 0.95
RESAMPLES = 200


def balanced_accuracy(answers: Tensor, test: PrivateData, seed: int) -> tuple[float, float, float]:
    """Mean over classes of the share guessed right, and its bootstrap interval over owners.

    Answers are int64, of the shape of ``test.sensitive``; without owners records are redrawn.
    """
    classes = test.sensitive_classes
    hot = torch.nn.functional.one_hot(test.sensitive.reshape(len(test), -1), classes).double()
    right = hot * (answers == test.sensitive).reshape(len(test), -1, 1)
    cells = torch.cat([right.sum(1), hot.sum(1)], 1)
    cells = by_owner(cells, test.owners)
    source = np.random.default_rng(seed)
    size = len(cells)
    counts = source.multinomial(size, np.full(size, 1 / size), RESAMPLES)
    drawn = _balanced(torch.from_numpy(counts).double() @ cells, classes)
    middle = float(_balanced(cells.sum(0, keepdim=True), classes)[0])
    ends = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=torch.float64)
    low, high = torch.nanquantile(drawn, ends).tolist()
    return middle, low, high


def _balanced(cells: Tensor, classes: int) -> Tensor:
    """Of rows [r, 2 · classes]: right answers by class, then records by class."""
    right, count = cells[:, :classes], cells[:, classes:]
    return torch.where(count > 0, right / count.clamp_min(1), torch.nan).nanmean(1)
