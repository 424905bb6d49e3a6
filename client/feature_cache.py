"""An annotator's rows of a node's records, kept between rounds: only its weight changes in them.

Rows are kept for one frame of a `LocalUsers` object at a time. The object itself, not what it
equals, is the key, and what is kept goes when the object goes: rows of one configuration or data
set never answer for another.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from client.cohort_data import BATCH, batched_records
from client.data import LocalUsers
from models.annotators import Annotator

GROUP = 64
"""Users whose rows are made and kept together."""
MOST_KEPT = 2**28
"""Values (1 GiB) that all nodes of a process keep together; what is beyond is made anew."""


@dataclass(frozen=True)
class FeatureGroup:
    """Rows and labels of some neighbouring users."""

    rows: Tensor
    """float32 [n, components + 1]."""
    labels: Tensor
    """int64 [n]."""
    bounds: tuple[int, ...]
    """User i of the group has the records from bounds[i] up to bounds[i + 1]."""


@dataclass
class _Kept:
    owner: weakref.ref[LocalUsers]
    frame: str
    groups: dict[int, FeatureGroup] = field(default_factory=dict)

    def values(self) -> int:
        return sum(group.rows.numel() for group in self.groups.values())


_KEPT: dict[int, _Kept] = {}


class FeatureCache:
    """The records of a node's users as rows of an annotator with a given frame.

    The same rows bit for bit, whether they were kept or not and what other users were asked for:
    users are computed in fixed groups.
    """

    def __init__(self, users: LocalUsers, annotator: Annotator) -> None:
        self._users, self._annotator = users, annotator
        self._kept = _kept(users, annotator.frame_digest())

    def user(self, position: int) -> tuple[Tensor, Tensor]:
        """Rows float32 [n, components + 1] and labels int64 [n] of one user's sound records."""
        group = self.group(position // GROUP)
        first, end = group.bounds[position % GROUP : position % GROUP + 2]
        return group.rows[first:end], group.labels[first:end]

    def groups(self) -> Iterator[FeatureGroup]:
        """All users' rows, group by group."""
        return (self.group(number) for number in range(-(-len(self._users) // GROUP)))

    def group(self, number: int) -> FeatureGroup:
        """The rows of users number·GROUP and following."""
        known = self._kept.groups.get(number)
        if known is None:
            known = self._made(number)
            if sum(kept.values() for kept in _KEPT.values()) + known.rows.numel() <= MOST_KEPT:
                self._kept.groups[number] = known
        return known

    def _made(self, number: int) -> FeatureGroup:
        positions = range(number * GROUP, min((number + 1) * GROUP, len(self._users)))
        rows, labels, bounds = [], [], [0]
        for data, counts in batched_records(self._users, positions):
            rows.append(rows_of(self._annotator, data.images))
            labels.append(data.labels)
            for count in counts:
                bounds.append(bounds[-1] + count)
        return FeatureGroup(torch.cat(rows), torch.cat(labels), tuple(bounds))


@torch.no_grad()
def rows_of(annotator: Annotator, images: Tensor) -> Tensor:
    """Rows float32 [n, components + 1] of images [n, c, h, w], some at a time; n may be 0."""
    if not len(images):
        return annotator.weight.new_zeros(0, annotator.components + 1)
    return torch.cat([annotator.rows(part) for part in torch.split(images, BATCH)])


def _kept(users: LocalUsers, frame: str) -> _Kept:
    """What is kept for a `LocalUsers` object; rows of another frame are forgotten."""
    key = id(users)
    known = _KEPT.get(key)
    if known is not None and known.owner() is users and known.frame == frame:
        return known
    owner = weakref.ref(users, lambda _: _KEPT.pop(key, None))
    _KEPT[key] = _Kept(owner, frame)
    return _KEPT[key]
