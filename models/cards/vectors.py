"""A user's card: one vector of bounded norm, whatever the user holds."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.models.cards.measures import copies, equal_pictures, measure_pictures, thumbnails
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
    exact, near = copies(equal_pictures(images), thumbnails(images), present)
    rows = picture_rows(images, layout)
    users = card_vectors(rows[None], labels[None], present[None], exact[None], near[None], layout)
    return users[0]


def picture_rows(images: Tensor, layout: CardLayout) -> Tensor:
    """What each picture adds to its user's histograms of pictures, float32 [n, numbers].

    Those of classes are not among them.
    """
    numbers = measure_pictures(images)
    pairs = zip(layout.statistics, layout.inner_edges, strict=True)
    return torch.cat(
        [_rows(s, numbers[s.name], inner) for s, inner in pairs if s.name in numbers], 1
    )


def card_vectors(
    rows: Tensor, labels: Tensor, present: Tensor, exact: Tensor, near: Tensor, layout: CardLayout
) -> Tensor:
    """The vectors of users who hold as many records each, absent ones among them.

    Args:
        rows: of `picture_rows`, float32 [users, records, numbers].
        labels: int64 [users, records] in [0, classes).
        present: bool [users, records].
        exact: bool [users, records looked at], which records repeat an earlier one.
        near: the same, nearly but not exactly.
        layout: which statistics.

    Returns:
        float32 [users, layout.size].
    """
    held = present.float()
    shares = held / held.sum(1, keepdim=True).clamp(min=1)
    kinds = one_hot(labels.clamp(0, layout.classes - 1), layout.classes) * held[..., None]
    numbers = _numbers_of_users(kinds.sum(1), present, exact, near)
    found = [torch.bmm(shares[:, None], rows)[:, 0]]
    for one, inner in zip(layout.statistics, layout.inner_edges, strict=True):
        if one.name == "classes":
            found.append(one.weight * (kinds * shares[..., None]).sum(1))
        elif one.of_users:
            found.append(held.amax(1, keepdim=True) * _rows(one, numbers[one.name], inner))
    split = len(found) - sum(one.of_users for one in layout.statistics)
    records = torch.cat(found[:split], 1)
    records = records * (RECORDS_NORM / records.norm(dim=1, keepdim=True).clamp(min=RECORDS_NORM))
    return torch.cat([records, *found[split:]], 1)


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


def _numbers_of_users(
    held: Tensor, present: Tensor, exact: Tensor, near: Tensor
) -> dict[str, Tensor]:
    """Of each user's records together, [users] each; ``held`` says how many of each class."""
    enough = COPIED * present[:, : exact.shape[1]].sum(1)
    few_exact, few = exact.sum(1) < enough, (exact | near).sum(1) < enough
    return {
        "records": held.sum(1),
        "duplicates": 1.0 + few_exact.float() - 2.0 * few.float(),  # exact 1, nearly 2
        "user_classes": (held > 0).sum(1).float(),
        "largest_share": held.amax(1) / held.sum(1).clamp(min=1),
    }
