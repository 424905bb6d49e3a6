"""Critic families as users train them: one Protocol, one registry line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from client.clipping import Blocks
from client.data import LocalData, LocalUsers
from client.messages import TrainRequest
from client.tasks.annotator import AnnotatorLocalCritic
from client.tasks.focused import FocusedLocalCritic
from client.tasks.frozen import FrozenLocalCritic
from client.tasks.privatizer import PrivatizerLocalCritic
from client.tasks.wgan import WganLocalCritic


class LocalCritic(Protocol):
    """What a family does on a node."""

    chunk: int
    """Users to hold in memory at once."""

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor | Blocks:
        """Each user's *unclipped* update, a row each, shape [len(cohort), P].

        A row depends on its own user's records, its seed and public state only.
        """


FAMILIES: dict[str, Callable[[LocalUsers, TrainRequest], LocalCritic]] = {
    "annotator": AnnotatorLocalCritic,
    "focused": FocusedLocalCritic,
    "frozen": FrozenLocalCritic,
    "privatizer": PrivatizerLocalCritic,
    "wgan": WganLocalCritic,
}
