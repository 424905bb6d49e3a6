"""Which records reference users hold and under which names, and the clip of what they send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.models.shapes import one_hot

AT_ONCE = 64
"""Users whose sums are made together."""
TINY = 1e-30
"""Norm below which an update counts as nothing."""
HALVES = (slice(0, None, 2), slice(1, None, 2))
"""The even and the odd users: halves of the reference, whose errors are independent."""


@dataclass(frozen=True, eq=False)
class Held:
    """Which records users hold, in one shape: absent ones weigh nothing."""

    places: Tensor
    """Rows of the records, int64 [users, records]."""
    labels: Tensor
    """int64 [users, records]."""
    present: Tensor
    """bool [users, records]."""

    def __len__(self) -> int:
        """How many users there are."""
        return len(self.labels)

    @property
    def shares(self) -> Tensor:
        """What each record weighs in its user's mean, float32 [users, records]."""
        return self.present.float() / self.present.sum(1, keepdim=True).clamp(min=1)

    def some(self, users: slice) -> Held:
        """Some of the users."""
        return Held(self.places[users], self.labels[users], self.present[users])


@dataclass(frozen=True, eq=False)
class Named:
    """What each of some users' rows counts for under each name: all that labels decide.

    In several ways at once, which share what depends on the rows alone.
    """

    weights: Tensor
    """float32 [ways, users, classes, rows]; a user's add up to 1."""
    ways: Sequence[Held]
    """The same, record by record, with places among the user's own rows: copies of one are told
    apart, absent ones are there."""


def named(ways: Sequence[Held], rows: int, classes: int) -> Named:
    """What users' rows, so many each, count for where they hold records of these places."""
    kinds = (one_hot(one.labels, classes) * one.shares[..., None] for one in ways)
    weights = [k.mT @ one_hot(one.places, rows) for k, one in zip(kinds, ways, strict=True)]
    return Named(torch.stack(weights), ways)


def clipped(updates: Tensor, request: TrainRequest) -> Tensor:
    """Rows cut down to the request's clipping norm."""
    return updates * shortened(updates.norm(dim=1), request)[:, None]


def shortened(norms: Tensor, request: TrainRequest) -> Tensor:
    """What updates of such norms are multiplied by, so that none exceeds the clipping norm."""
    factors: Tensor = (request.mechanism.clipping_norm / norms.clamp(min=TINY)).clamp(max=1.0)
    return factors


def slices(users: int, size: int) -> list[slice]:
    """So many users in groups of this size, of which the last may be smaller."""
    return [slice(first, min(first + size, users)) for first in range(0, users, size)]
