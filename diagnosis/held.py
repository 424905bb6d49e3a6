"""Which records reference users hold and under which names, and the clip of what they send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedlens.client.messages import TrainRequest

AT_ONCE = 64
"""Users whose sums are made together."""
TINY = 1e-30
"""Norm below which an update counts as nothing."""


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

    def some(self, first: int, last: int) -> Held:
        """The users from ``first`` to before ``last``."""
        return Held(self.places[first:last], self.labels[first:last], self.present[first:last])

    def users(self, numbers: Tensor) -> Held:
        """The users of these numbers, int64 [n]."""
        return Held(self.places[numbers], self.labels[numbers], self.present[numbers])


@dataclass(frozen=True, eq=False)
class Named:
    """What each of a user's own records counts for under each name: all that labels decide.

    In several ways at once, which share what depends on the records alone.
    """

    places: Tensor
    """Rows of the users' own records, int64 [users, records]."""
    weights: Tensor
    """float32 [ways, users, classes, records]; a user's add up to 1."""
    ways: Sequence[Held]
    """The same, record by record: copies of one are told apart, absent ones are there."""

    @property
    def flat(self) -> Tensor:
        """The weights class by class, float32 [ways, classes, users x records]."""
        return self.weights.transpose(1, 2).flatten(2)


def clipped(updates: Tensor, request: TrainRequest) -> Tensor:
    """Rows cut down to the request's clipping norm."""
    return updates * shortened(updates.norm(dim=1), request)[:, None]


def shortened(norms: Tensor, request: TrainRequest) -> Tensor:
    """What updates of such norms are multiplied by, so that none exceeds the clipping norm."""
    factors: Tensor = (request.mechanism.clipping_norm / norms.clamp(min=TINY)).clamp(max=1.0)
    return factors


def halves_of(users: int) -> tuple[slice, slice]:
    """The even and the odd of so many users."""
    return slice(0, users, 2), slice(1, users, 2)
