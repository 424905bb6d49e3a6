"""What engines of local steps are given: users' records, what was drawn of them, and the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class LocalRule:
    """How a local step moves the critic."""

    loss: str
    """``wasserstein`` or ``hinge``."""
    rate: float
    """Learning rate."""
    limits: Mapping[str, float]
    """What each named parameter is kept within after a step; one that is not there is free."""


@dataclass(frozen=True)
class LocalBatches:
    """The batches of some users' steps; users, steps and batches are as many whatever they hold."""

    images: Tensor
    """float32 [users, records, channels, height, width]; zeros where there is no record."""
    labels: Tensor
    """int64 [users, records]."""
    picks: Tensor
    """int64 [users, steps, batch]: the records of each step."""
    pool: Tensor
    """float32 [classes, per class, channels, height, width]: generated images, public."""
    places: Tensor
    """int64 [users, steps, batch]: which of its class is held against each record."""

    @property
    def step_labels(self) -> Tensor:
        """Labels of each step's records, int64 [users, steps, batch]."""
        users, steps, batch = self.picks.shape
        return torch.gather(self.labels, 1, self.picks.view(users, -1)).view(users, steps, batch)

    @property
    def real(self) -> Tensor:
        """Each step's records, [users, steps, batch, channels, height, width]."""
        own = torch.arange(len(self.labels), device=self.labels.device)[:, None, None]
        return self.images[own, self.picks]

    @property
    def fakes(self) -> Tensor:
        """Generated images of the same classes, of the shape of `real`."""
        return self.pool[self.step_labels, self.places]

    def parts(self, size: int) -> Iterator[LocalBatches]:
        """``size`` users at a time; users without records fill the last part up."""
        missing = -len(self.labels) % size

        def cut(whole: Tensor) -> tuple[Tensor, ...]:
            filled = torch.cat([whole, whole.new_zeros(missing, *whole.shape[1:])])
            return torch.split(filled, size)

        rows = (cut(w) for w in (self.images, self.labels, self.picks, self.places))
        for images, labels, picks, places in zip(*rows, strict=True):
            yield LocalBatches(images, labels, picks, self.pool, places)


class LocalEngine(Protocol):
    """Takes users' local steps, each from the critic's global weights, by itself."""

    def changes(self, batches: LocalBatches) -> Tensor:
        """How far each user's steps take the critic, *unclipped*, float32 [users, P].

        A row depends on its own user's part of the batches and on public state alone, bit for bit;
        work and memory on the batches' shape alone.
        """
