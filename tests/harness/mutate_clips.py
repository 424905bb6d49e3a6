"""Faults of the clip, of what is added up, and of the server's checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from fedlens.client.update.clipping import Updates as AnyUpdates
from fedlens.client.update.clipping import clip_and_sum as real
from fedlens.client.update.clipping import rows_of_updates

HUGE, PARTS = 1e3, 10
"""A clip that nothing here is longer than, and small enough for sums on its lattice to be near."""
HOMES = ("fedlens.client.train.clip_and_sum", "fedlens.client.update.record_mode.clip_and_sum")
Updates = Tensor | AnyUpdates
Clip = Callable[[Updates, float], Tensor]
"""What a broken clip and sum gives of updates and C."""


@contextmanager
def clip_replaced(broken: Clip) -> Iterator[None]:
    """Nodes sum by ``broken`` and say of norms what they would say otherwise."""

    def clipped(updates: Updates, clipping_norm: float) -> tuple[Tensor, Tensor]:
        return broken(updates, clipping_norm), real(updates, clipping_norm)[1]

    with ExitStack() as stack:
        for home in HOMES:
            stack.enter_context(patch(home, clipped))
        yield


def unclipped(updates: Updates, clipping_norm: float) -> Tensor:
    """No clip at all."""
    return real(updates, HUGE)[0]


def doubled(updates: Updates, clipping_norm: float) -> Tensor:
    """Another C."""
    return real(updates, 2 * clipping_norm)[0]


def of_the_sum(updates: Updates, clipping_norm: float) -> Tensor:
    """The sum of all that came together is clipped, not each of them."""
    return real(real(updates, HUGE)[0][None], clipping_norm)[0]


def by_part(updates: Updates, clipping_norm: float) -> Tensor:
    """Each class's part of an update is clipped by itself."""
    if not isinstance(updates, Tensor) or updates.shape[1] % PARTS:
        return real(updates, clipping_norm)[0]
    parts = updates.view(len(updates), PARTS, -1)
    return torch.cat([real(parts[:, place], clipping_norm)[0] for place in range(PARTS)])


def first_twice(updates: Updates, clipping_norm: float) -> Tensor:
    """The first of them is added twice."""
    return real(updates, clipping_norm)[0] + real(rows_of_updates(updates)[:1], clipping_norm)[0]


@contextmanager
def no_block_clip() -> Iterator[None]:
    """The privatizer's blocks go as they are into an update, which is clipped as a whole."""
    with patch("fedlens.client.tasks.privatizer._clipped", lambda rows, bound: rows):
        yield


@contextmanager
def no_check() -> Iterator[None]:
    """The server takes whatever it is sent."""
    with patch("fedlens.server.round.aggregation.objection", lambda answer, limits: None):
        yield
