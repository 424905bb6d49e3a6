"""A user's card: one vector of bounded norm, whatever the user holds."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.models.cards.measures import copies, measure_pictures
from fedlens.models.cards.statistics import COPIED, RECORDS_NORM, CardLayout, Statistic
from fedlens.models.shapes import one_hot


def card_vector(images: Tensor, labels: Tensor, present: Tensor, layout: CardLayout) -> Tensor:
    """One user's vector, float32 [layout.size]; zeros of a user without records.

    Guarantees an L2 norm of `CardLayout.longest` at most (but for rounding), and no number below 0.

    Args:
        images: float32 [records, channels, height, width] in [-1, 1].
        labels: int64 [records] in [0, classes).
        present: bool [records]: whether there is a record.
        layout: which statistics.
    """
    shares = present.float() / present.sum().clamp(min=1)
    numbers = {**measure_pictures(images), "classes": labels.float()}
    numbers |= _numbers_of_user(images, labels, present, layout.classes)
    of_records = [one for one in layout.statistics if not one.of_users]
    of_users = [one for one in layout.statistics if one.of_users]
    if layout.statistics != (*of_records, *of_users):
        raise ValueError("statistics of records come first")
    records = torch.cat([shares @ _rows(one, numbers[one.name]) for one in of_records])
    records = records * (RECORDS_NORM / records.norm().clamp(min=RECORDS_NORM))
    there = present.any().float()
    users = [there * _rows(one, numbers[one.name].view(1))[0] for one in of_users]
    return torch.cat([records, *users])


def _rows(statistic: Statistic, numbers: Tensor) -> Tensor:
    """The bins that are sent, times the statistic's weight, of numbers [n] or shares [n, bins]."""
    rows = numbers if numbers.dim() == 2 else one_hot(_bins(statistic, numbers), statistic.bins)
    return statistic.weight * rows[:, list(statistic.sent)]


def _bins(statistic: Statistic, numbers: Tensor) -> Tensor:
    inner = torch.tensor(statistic.edges[1:-1], device=numbers.device)
    return torch.bucketize(numbers.contiguous(), inner, right=True)


def _numbers_of_user(
    images: Tensor, labels: Tensor, present: Tensor, classes: int
) -> dict[str, Tensor]:
    exact, near = copies(images, present)
    enough = COPIED * present[: len(exact)].sum()
    few_exact, few = exact.sum() < enough, exact.sum() + near.sum() < enough
    places = labels.clamp(0, classes - 1)
    held = torch.zeros(classes, device=labels.device).scatter_add_(0, places, present.float())
    return {
        "records": held.sum(),
        "duplicates": 1.0 + few_exact.float() - 2.0 * few.float(),  # exact 1, nearly 2, none 0
        "user_classes": (held > 0).sum().float(),
        "largest_share": held.max() / held.sum().clamp(min=1),
    }
