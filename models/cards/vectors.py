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
        images: float32 [records, channels, height, width] in [-1, 1]; what lies outside is cut.
        labels: int64 [records] in [0, classes).
        present: bool [records]: whether there is a record.
        layout: which statistics.
    """
    images = images.clamp(-1, 1)  # so that near copies too are of what bytes can hold
    shares = present.float() / present.sum().clamp(min=1)
    numbers = {**measure_pictures(images), "classes": labels.float()}
    numbers |= _numbers_of_user(images, labels, present, layout.classes)
    found = [
        _rows(one, numbers[one.name], inner)
        for one, inner in zip(layout.statistics, layout.inner_edges, strict=True)
    ]
    split = layout.of_records
    records = torch.cat([shares @ rows for rows in found[:split]])
    records = records * (RECORDS_NORM / records.norm().clamp(min=RECORDS_NORM))
    return torch.cat([records, *(present.any() * rows[0] for rows in found[split:])])


def _rows(statistic: Statistic, numbers: Tensor, inner: Tensor) -> Tensor:
    """The bins that are sent, times the statistic's weight, of numbers [n] or shares [n, bins].

    ``inner`` are the edges between the bins.
    """
    shares = numbers
    if numbers.dim() == 1:
        places = torch.bucketize(numbers.contiguous(), inner.to(numbers.device), right=True)
        shares = one_hot(places, statistic.bins)
    first, last = statistic.implied == 0, statistic.implied == statistic.bins - 1
    return statistic.weight * shares[:, int(first) : statistic.bins - int(last)]


def _numbers_of_user(
    images: Tensor, labels: Tensor, present: Tensor, classes: int
) -> dict[str, Tensor]:
    """Of the user's records together, [1] each."""
    exact, near = copies(images, present)
    enough = COPIED * present[: len(exact)].sum()
    few_exact, few = exact.sum() < enough, exact.sum() + near.sum() < enough
    places = labels.clamp(0, classes - 1)
    held = torch.zeros(classes, device=labels.device).scatter_add_(0, places, present.float())
    return {
        "records": held.sum().view(1),
        "duplicates": (1.0 + few_exact.float() - 2.0 * few.float()).view(1),  # exact 1, nearly 2
        "user_classes": (held > 0).sum().float().view(1),
        "largest_share": (held.max() / held.sum().clamp(min=1)).view(1),
    }
