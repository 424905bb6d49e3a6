"""An annotator's rows of a node's records, cached between rounds: only its weight changes in them.

Rows are cached for one frame of a `LocalUsers` object at a time: those of one configuration or data
set never answer for another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedlens.client.update.record_mode import DrawnRecords, NodeRecords
from fedlens.client.users.cache import WeakCache
from fedlens.client.users.protocol import LocalData, LocalUsers
from fedlens.client.users.records import NO_USER, CohortData, alone
from fedlens.models.annotators import Annotator

GROUP = 128
"""Neighbouring records of a node, in record mode, whose rows are made and cached together."""
MOST_CACHED = 2**28
"""Values (1 GiB) that all nodes of a process cache together; what is beyond is made anew."""


@dataclass(frozen=True)
class UserRows:
    """A user's records as rows, in one shape whatever the user holds."""

    rows: Tensor
    """float32 [records, components + 1]; any numbers where there is no record."""
    labels: Tensor
    """int64 [records]."""
    shares: Tensor
    """What each record weighs in the user's mean, float32 [records]; 0 where there is none."""


@dataclass(frozen=True)
class RowGroup:
    """Rows of the sound ones among neighbouring records."""

    rows: Tensor
    """float32 [n, components + 1]."""
    labels: Tensor
    """int64 [n]."""
    places: Tensor
    """Which records of the node, ascending, int64 [n]."""


@dataclass
class CachedRows:
    """What is cached of one node's users."""

    room: int
    """Values that there is room for: all, or 0."""
    users: dict[int, UserRows] = field(default_factory=dict)
    groups: dict[int, RowGroup] = field(default_factory=dict)


ROWS: WeakCache[CachedRows] = WeakCache(MOST_CACHED)


class FeatureCache:
    """The records of a node's users as rows of an annotator with a given frame.

    User mode: a user's rows are made of that user's records alone, in one shape, so no other user
    changes a bit of them. They are made for all users at once where there is room for them, and
    for those asked for, each time, where there is none: neither depends on what users hold or on
    who was asked for before.
    """

    def __init__(self, users: LocalUsers, annotator: Annotator, records: int = 0) -> None:
        """Rows of users as if they held ``records`` records each; 0 in record mode."""
        self._users, self._annotator, self._records = users, annotator, records
        self._width = annotator.components + 1
        self._node = NodeRecords(users) if not records else None
        count = len(users) * records if self._node is None else len(self._node)
        self._cached = _cached(users, (annotator.frame_digest(), records), count * self._width)

    def cohort(self, cohort: CohortData) -> list[UserRows]:
        """The rows of some users; absent ones have no record."""
        if self._cached.room and not self._cached.users:
            everybody = (*range(len(self._users)), NO_USER)
            self._cached.users |= {place: self._made(place) for place in everybody}
        known = self._cached.users
        places = zip(cohort.positions, cohort.decoys, strict=True)
        return [known[p] if known else self._made(p, decoy) for p, decoy in places]

    def _made(self, position: int, decoy: int = NO_USER) -> UserRows:
        data = CohortData(self._users, [position], [decoy])[0]
        return rows_of_user(self._annotator, data, self._records, self._users)

    def drawn(self, drawn: DrawnRecords) -> tuple[Tensor, Tensor]:
        """Record mode: rows float32 [n, components + 1] and labels of the sound ones among some."""
        if not self._cached.room:
            data = drawn.read()
            return rows_of(self._annotator, data.images), data.labels
        found = [self._group(number, drawn.node) for number in np.unique(drawn.places // GROUP)]
        chosen = torch.from_numpy(drawn.places)
        masks = [torch.isin(group.places, chosen) for group in found]
        rows = [group.rows[mask] for group, mask in zip(found, masks, strict=True)]
        labels = [group.labels[mask] for group, mask in zip(found, masks, strict=True)]
        return (
            torch.cat([torch.zeros(0, self._width), *rows]),
            torch.cat([torch.zeros(0, dtype=torch.int64), *labels]),
        )

    def _group(self, number: int, node: NodeRecords) -> RowGroup:
        known = self._cached.groups.get(number)
        if known is None:
            places = np.arange(number * GROUP, min((number + 1) * GROUP, len(node)))
            data, sound = node.read(places)
            rows = rows_of(self._annotator, data.images)
            known = RowGroup(rows, data.labels, torch.from_numpy(places)[sound])
            self._cached.groups[number] = known
        return known


def rows_of_user(
    annotator: Annotator, data: LocalData, records: int, users: LocalUsers
) -> UserRows:
    """The rows of a user's records."""
    held = alone(data, records, users)
    return UserRows(rows_of(annotator, held.images[0]), held.labels[0], held.shares[0])


@torch.no_grad()
def rows_of(annotator: Annotator, images: Tensor) -> Tensor:
    """Rows float32 [n, components + 1] of images [n, c, h, w], some at a time; n may be 0.

    They are made on the annotator's device, and kept on the processor.
    """
    if not len(images):
        return torch.zeros(0, annotator.components + 1)
    device = annotator.weight.device
    return torch.cat([annotator.rows(p.to(device)).cpu() for p in torch.split(images, GROUP)])


def _cached(users: LocalUsers, frame: tuple[str, int], values: int) -> CachedRows:
    """What is cached for a `LocalUsers` object; rows of another frame are forgotten.

    Room is set aside for all values at once or not at all, so that whether rows are cached does not
    depend on who was asked for.
    """
    known = ROWS.get(users, frame)
    if known is None:
        ROWS.clear(users)
        known = CachedRows(values if values <= ROWS.room else 0)
        ROWS.put(users, frame, known, known.room)
    return known
