"""Users that take part: their sound records, looked up once and only where somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor

from fedlens.client.users.protocol import LocalData, LocalUsers, Rows

NO_USER = -1
"""In a user's place where there is none: what fills the last chunk, and holds no record."""


def sound_records(users: LocalUsers, user: int, rows: Rows | None = None) -> LocalData:
    """A user's records (or some of them) that fit the schema; others are as if not there.

    Users are computed together, so a label or an image of one must never reach another's rows, or
    fail the node: the sensitivity of the sum to one user would not be C. For the same reason a user
    whose records cannot be read at all is one without records.
    """
    return placed_records(users, user, rows)[0]


def placed_records(
    users: LocalUsers, user: int, rows: Rows | None = None
) -> tuple[LocalData, Tensor]:
    """`sound_records`, and their places among those that were asked for, int64 [n]."""
    try:
        return _sound(users, users.user(user, rows), None if rows is None else len(rows))
    except Exception:  # whatever is wrong with one user's data must not fail the others
        return no_records(users), torch.zeros(0, dtype=torch.int64)


def no_records(users: LocalUsers) -> LocalData:
    """What a user without records holds."""
    return LocalData(torch.zeros(0, *users.shape), torch.zeros(0, dtype=torch.int64))


def _sound(users: LocalUsers, data: LocalData, asked: int | None) -> tuple[LocalData, Tensor]:
    count = len(data.labels) if asked is None else asked
    shaped = data.images.shape == (count, *users.shape) and data.labels.shape == (count,)
    if not shaped or data.labels.dtype != torch.int64 or data.images.dtype != torch.float32:
        return no_records(users), torch.zeros(0, dtype=torch.int64)
    fits = (data.labels >= 0) & (data.labels < users.classes)
    fits &= torch.isfinite(data.images).flatten(1).all(1)
    sensitive = data.sensitive
    if sensitive is not None:
        if sensitive.shape != data.labels.shape:
            return no_records(users), torch.zeros(0, dtype=torch.int64)
        fits &= (sensitive >= 0) & (sensitive < users.sensitive_classes)
        sensitive = sensitive[fits]
    sound = LocalData(data.images[fits], data.labels[fits], sensitive, _hiding(data.hides, fits))
    return sound, fits.nonzero()[:, 0]


def _hiding(hides: Tensor | None, fits: Tensor) -> Tensor | None:
    """Bits of the records that fit, float32 [n, 1]; what is no bit hides the sensitive value."""
    if hides is None:
        return None
    if hides.shape != (len(fits), 1):
        return torch.ones(int(fits.sum()), 1)
    return (hides != 0).float()[fits]


class CohortData(Sequence[LocalData]):
    """The records of some users of a node; a user's are read when they are first looked at."""

    def __init__(
        self, users: LocalUsers, positions: Sequence[int], decoys: Sequence[int] = ()
    ) -> None:
        """Name the users by their positions; `NO_USER` holds nothing.

        ``decoys``, for each position where there are any, are users whose records are read and
        dropped where it is `NO_USER`: how long it takes then does not tell how many there are.
        """
        self.positions = tuple(positions)
        self.decoys = tuple(decoys) or (NO_USER,) * len(self.positions)
        self._users = users
        self._known: dict[int, LocalData] = {}
        self._dropped: set[int] = set()

    def __len__(self) -> int:
        """How many users."""
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> LocalData: ...
    @overload
    def __getitem__(self, index: slice) -> CohortData: ...
    def __getitem__(self, index: int | slice) -> LocalData | CohortData:
        """The sound records of one of them."""
        if isinstance(index, slice):
            return CohortData(self._users, self.positions[index], self.decoys[index])
        position = self.positions[index]
        if position == NO_USER:
            self._read_and_drop(self.decoys[index])
            return no_records(self._users)
        if position not in self._known:
            self._known[position] = sound_records(self._users, position)
        return self._known[position]

    def _read_and_drop(self, decoy: int) -> None:
        """Do what is done for a user who is there: once, and with a copy as `padded` makes one."""
        if decoy == NO_USER or decoy in self._dropped:
            return
        self._dropped.add(decoy)
        sound_records(self._users, decoy).images.clone()


@dataclass(frozen=True)
class PaddedRecords:
    """Users' records in one shape, so that the work for a user is the same whatever they hold."""

    images: Tensor
    """float32 [users, records, channels, height, width]; zeros where there is no record."""
    labels: Tensor
    """int64 [users, records]."""
    present: Tensor
    """bool [users, records]: whether there is a record; those of a user come first."""
    sensitive: Tensor
    """int64 [users, records]; zeros where none is known."""
    hides: Tensor
    """float32 [users, records, 1]: 1 where the user wants the sensitive value hidden."""

    @property
    def shares(self) -> Tensor:
        """What each record weighs in its user's mean, float32 [users, records]."""
        held = self.present.sum(1, keepdim=True).clamp(min=1)
        return self.present.float() / held


def padded(cohort: Sequence[LocalData], records: int, users: LocalUsers) -> PaddedRecords:
    """The first ``records`` records of each user, filled up with absent ones."""
    count = len(cohort)
    images = torch.zeros(count, records, *users.shape)
    labels, sensitive = (torch.zeros(count, records, dtype=torch.int64) for _ in range(2))
    present, hides = torch.zeros(count, records, dtype=torch.bool), torch.ones(count, records, 1)
    for row, data in enumerate(cohort):
        held = min(len(data.labels), records)
        images[row, :held], labels[row, :held] = data.images[:held], data.labels[:held]
        present[row, :held] = True
        if data.sensitive is not None:
            sensitive[row, :held] = data.sensitive[:held]
        if data.hides is not None:
            hides[row, :held] = data.hides[:held]
    return PaddedRecords(images, labels, present, sensitive, hides)


def alone(data: LocalData, records: int, users: LocalUsers) -> PaddedRecords:
    """`padded` of one user; in a simulation without absent records, but for one where all are.

    A node's time and memory must not tell how much a user holds. A simulation has all records
    itself, and is spared the work. A user's numbers still follow from that user's records alone.
    """
    if not users.origin.own:
        records = min(records, max(1, len(data.labels)))
    return padded([data], records, users)


def shuffled(held: int, wanted: int, most: int, source: np.random.Generator) -> Rows:
    """``wanted`` positions out of ``held``, each as often as any other (give or take one).

    The same draws whatever is held, of ``most`` at most; zeros where nothing is.
    """
    order = source.permutation(most)
    own = order[order < max(1, held)]
    return np.resize(own, wanted).astype(np.int64)
