"""Users that take part: their sound records, looked up once and only where somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import torch
from torch import Tensor

from client.data import LocalData, LocalUsers, sensitive_of

BATCH = 512
"""Records that are gathered before they are computed together."""


def sound_records(users: LocalUsers, user: int) -> LocalData:
    """A user's records that fit the schema; the others are as if they were not there.

    Users are computed together, so a label or an image of one must never reach another's rows, or
    fail the node: the sensitivity of the sum to one user would not be C.
    """
    data = users.user(user)
    if data.images.shape[1:] != users.shape or data.labels.shape != data.images.shape[:1]:
        return LocalData(torch.zeros(0, *users.shape), torch.zeros(0, dtype=torch.int64))
    fits = (data.labels >= 0) & (data.labels < users.classes)
    fits &= torch.isfinite(data.images).flatten(1).all(1)
    if data.sensitive is None:
        return LocalData(data.images[fits], data.labels[fits], None, _choice(data.choice, fits))
    return _with_sensitive(data, fits, sensitive_of(users)[1])


def _with_sensitive(data: LocalData, fits: Tensor, classes: int) -> LocalData:
    """Records that fit, those without a known sensitive value left out."""
    if data.sensitive is None or data.sensitive.shape != data.labels.shape:
        return LocalData(data.images[:0], data.labels[:0])
    fits = fits & (data.sensitive >= 0) & (data.sensitive < classes)
    choice = _choice(data.choice, fits)
    return LocalData(data.images[fits], data.labels[fits], data.sensitive[fits], choice)


def _choice(choice: Tensor | None, fits: Tensor) -> Tensor | None:
    """Bits of the records that fit, float32 [n, 1]; what is no bit hides the sensitive value."""
    if choice is None:
        return None
    if choice.shape != (len(fits), 1):
        return torch.ones(int(fits.sum()), 1)
    return (choice != 0).float()[fits]


def batched_records(
    users: LocalUsers, positions: Iterable[int]
) -> Iterator[tuple[LocalData, list[int]]]:
    """Sound records of users in the order given, together until there are `BATCH` or more.

    Which records come together depends on the positions and the node's data alone, so that what is
    computed of them is the same bit for bit each time.

    Yields:
        Some users' records, and how many each of these users has.
    """
    waiting: list[LocalData] = []
    records = 0
    for position in positions:
        waiting.append(sound_records(users, position))
        records += len(waiting[-1].labels)
        if records >= BATCH:
            yield _together(waiting)
            waiting, records = [], 0
    if waiting:
        yield _together(waiting)


def _together(found: list[LocalData]) -> tuple[LocalData, list[int]]:
    images, labels = torch.cat([d.images for d in found]), torch.cat([d.labels for d in found])
    return LocalData(images, labels), [len(data.labels) for data in found]


class CohortData(Sequence[LocalData]):
    """The records of some users of a node; a user's are read when they are first looked at."""

    def __init__(self, users: LocalUsers, positions: Sequence[int]) -> None:
        self.positions = tuple(positions)
        self._users = users
        self._known: dict[int, LocalData] = {}

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
            return CohortData(self._users, self.positions[index])
        position = self.positions[index]
        if position not in self._known:
            self._known[position] = sound_records(self._users, position)
        return self._known[position]


class UserSeeds(Sequence[int]):
    """A seed for each user's batches, from the request's; it depends on no other user."""

    def __init__(self, seed: int, positions: Sequence[int]) -> None:
        self._seed, self._positions = seed, tuple(positions)

    def __len__(self) -> int:
        """How many users."""
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> UserSeeds: ...
    def __getitem__(self, index: int | slice) -> int | UserSeeds:
        """The seed of one of them."""
        if isinstance(index, slice):
            return UserSeeds(self._seed, self._positions[index])
        mixed = np.random.SeedSequence([self._seed, self._positions[index]])
        return int(mixed.generate_state(1, np.uint64)[0])


def shuffled(held: int, wanted: int, source: np.random.Generator) -> np.ndarray:
    """``wanted`` positions out of ``held``, each as often as any other (give or take one)."""
    rounds = -(-wanted // held)
    return np.concatenate([source.permutation(held) for _ in range(rounds)])[:wanted]
