"""Faults of the draw, and of what a sum is divided by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.update.record_mode import add_step_noise, draw_records
from fedlens.server.federation.roster import DrawnUsers, Roster, draw_users
from fedlens.server.round.aggregation import noised_mean

Draw = Callable[[int, float, np.random.Generator], NDArray[np.int64]]
"""Positions drawn of so many units at a rate."""


@contextmanager
def drawn_by(broken: Draw) -> Iterator[None]:
    """Users of each node, or its records, are drawn by ``broken``."""

    def users(roster: Roster, sampling_rate: float, source: object) -> DrawnUsers:
        chance = np.random.default_rng()
        return [tuple(broken(n, sampling_rate, chance).tolist()) for n in roster.users]

    def records(count: int, request: Any, node: int, step: int) -> Tensor:
        rate = request.mechanism.sampling_rate
        return torch.from_numpy(broken(count, rate, np.random.default_rng()))

    with ExitStack() as stack:
        stack.enter_context(patch("fedlens.server.round.step.draw_users", users))
        stack.enter_context(patch("fedlens.client.update.record_mode.draw_records", records))
        yield


def fairly(count: int, rate: float, chance: np.random.Generator) -> NDArray[np.int64]:
    """As it should be."""
    return np.flatnonzero(chance.random(count) < rate)


def everybody(count: int, rate: float, chance: np.random.Generator) -> NDArray[np.int64]:
    """All, always."""
    return np.arange(count)


def one_always(count: int, rate: float, chance: np.random.Generator) -> NDArray[np.int64]:
    """The first one always, the others as they should be."""
    return np.union1d(fairly(count, rate, chance), np.arange(min(1, count)))


def at_twice_the_rate(count: int, rate: float, chance: np.random.Generator) -> NDArray[np.int64]:
    """2q."""
    return fairly(count, min(1.0, 2 * rate), chance)


def all_or_none(count: int, rate: float, chance: np.random.Generator) -> NDArray[np.int64]:
    """One coin for all."""
    return np.arange(count if chance.random() < rate else 0)


def same_each_time() -> Draw:
    """The first draw of so many units again and again."""
    kept: dict[int, NDArray[np.int64]] = {}

    def draw(count: int, rate: float, chance: np.random.Generator) -> NDArray[np.int64]:
        return kept.setdefault(count, fairly(count, rate, chance))

    return draw


@contextmanager
def realised_denominator() -> Iterator[None]:
    """Sums are divided by how many took part."""
    counted: list[int] = [0]

    def users(*given: Any) -> DrawnUsers:
        cohort = draw_users(*given)
        counted[0] = sum(map(len, cohort))
        return cohort

    def records(*given: Any) -> Tensor:
        places = draw_records(*given)
        counted[0] = len(places)
        return places

    def divided(total: Any, **given: Any) -> Any:
        return noised_mean(total, **{**given, "denominator": max(1, counted[0])})

    def scaled(total: Tensor, request: Any, *where: int) -> Tensor:
        by: float = request.mechanism.denominator / max(1, counted[0])
        return add_step_noise(total, request, *where) * by

    with ExitStack() as stack:
        for home, fault in (
            ("fedlens.server.round.step.draw_users", users),
            ("fedlens.client.update.record_mode.draw_records", records),
            ("fedlens.server.round.step.noised_mean", divided),
            ("fedlens.client.update.record_mode.add_step_noise", scaled),
        ):
            stack.enter_context(patch(home, fault))
        yield
