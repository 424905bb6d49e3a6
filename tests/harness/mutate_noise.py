"""Faults of the noise, wherever it is added: by the server to sums, by nodes to steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fedlens.client.update.record_mode
import fedlens.server.round.step
from fedlens.accountant.noise import TEST_MODE_VARIABLE
from fedlens.client.update.record_mode import add_step_noise
from fedlens.server.round.aggregation import BoundedSum
from fedlens.server.round.aggregation import noised_mean as mean
from fedlens.server.round.step import SealedSum

Floats = NDArray[np.float64]
SEED = 7


@dataclass(frozen=True)
class At:
    """Where noise is added."""

    round: int
    node: int
    step: int
    deviation: float
    """That is claimed."""


Change = Callable[[Floats, At], Floats]
"""What is added in place of the noise that was drawn."""


@contextmanager
def changed(change: Change) -> Iterator[None]:
    """``change`` of the noise is added in its place."""
    rounds, open_sum = [0], SealedSum.open

    def opened(self: SealedSum, charge: Any) -> Any:
        rounds[0] = self.number
        return open_sum(self, charge)

    def on_server(total: BoundedSum, **given: Any) -> Floats:
        by = given["denominator"]
        drawn = mean(total, **given) * by - total.values
        deviation = given["noise_multiplier"] * total.sensitivity
        at = At(rounds[0], 0, 0, deviation)
        found: Floats = (total.values + change(drawn, at)) / by
        return found

    def on_node(total: Tensor, request: Any, node: int, step: int) -> Tensor:
        drawn = (add_step_noise(total, request, node, step) - total).numpy()
        mechanism = request.mechanism
        deviation = mechanism.noise_multiplier * mechanism.clipping_norm
        at = At(request.round, node, step, deviation)
        return total + torch.from_numpy(change(drawn, at))

    with ExitStack() as stack:
        stack.enter_context(patch.object(SealedSum, "open", opened))
        stack.enter_context(patch("fedlens.server.round.step.noised_mean", on_server))
        stack.enter_context(patch("fedlens.client.update.record_mode.add_step_noise", on_node))
        yield


def missing(every: int) -> Change:
    """No noise in one of ``every`` coordinates, always the same ones; in one at least."""
    chance = np.random.default_rng()
    chosen: dict[int, NDArray[np.int64]] = {}

    def change(noise: Floats, at: At) -> Floats:
        size = len(noise)
        where = chosen.setdefault(size, chance.permutation(size)[: max(1, size // every)])
        found = noise.copy()
        found[where] = 0.0
        return found

    return change


def without_a_block() -> Change:
    """No noise in a twentieth of neighbouring coordinates."""
    start = np.random.default_rng().random()

    def change(noise: Floats, at: At) -> Floats:
        size, found = max(1, len(noise) // 20), noise.copy()
        first = int(start * (len(noise) - size))
        found[first : first + size] = 0.0
        return found

    return change


def striped(noise: Floats, at: At) -> Floats:
    """Half the noise in every seventh coordinate."""
    found = noise.copy()
    found[3::7] /= 2
    return found


def kept_by(*places: str, afresh: bool = False) -> Change:
    """The first noise that was drawn at such places is added again and again.

    Args:
        places: fields of `At`.
        afresh: whether noise is drawn again when the nodes are asked again.
    """
    kept: dict[tuple[object, ...], Floats] = {}

    def change(noise: Floats, at: At) -> Floats:
        key = tuple(getattr(at, name) for name in places)
        if afresh and at.node == 0 and at.step == 0:
            kept.clear()
        unit = kept.setdefault((len(noise), *key), noise / at.deviation)
        return unit * at.deviation

    return change


def shared() -> Change:
    """The n-th noise of each task begins with the same values."""
    numbers: dict[int, Iterator[int]] = {}
    units: dict[int, Floats] = {}

    def change(noise: Floats, at: At) -> Floats:
        n = next(numbers.setdefault(len(noise), itertools.count()))
        known = units.setdefault(n, noise / at.deviation)
        size = min(len(known), len(noise))
        return np.concatenate([known[:size] * at.deviation, noise[size:]])

    return change


def not_in(number: int) -> Change:
    """No noise in one round."""
    return lambda noise, at: noise * (at.round != number)


def uniform(noise: Floats, at: At) -> Floats:
    """The right variance of the wrong shape."""
    found: Floats = np.random.default_rng().uniform(-1, 1, len(noise)) * 3**0.5 * at.deviation
    return found


def smoothed(noise: Floats, at: At) -> Floats:
    """The right variance, neighbours alike."""
    found: Floats = (noise + np.roll(noise, 1)) / 2**0.5
    return found


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Noise and cohorts from a seed in the code."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict("os.environ", {TEST_MODE_VARIABLE: "1"}))
        for home in (fedlens.server.round.step, fedlens.client.update.record_mode):
            real = home.private_source

            def stuck(fixed_seed: int, *purpose: int, real: Any = real) -> Any:
                return real(SEED, *purpose)

            stack.enter_context(patch.object(home, "private_source", stuck))
        yield


@contextmanager
def before_the_clip() -> Iterator[None]:
    """What is noised is clipped again."""

    def on_server(total: BoundedSum, **given: Any) -> Floats:
        return _short(mean(total, **given), total.sensitivity / given["denominator"])

    def on_node(total: Tensor, request: Any, node: int, step: int) -> Tensor:
        found = add_step_noise(total, request, node, step).numpy()
        return torch.from_numpy(_short(found, request.mechanism.clipping_norm))

    with ExitStack() as stack:
        stack.enter_context(patch("fedlens.server.round.step.noised_mean", on_server))
        stack.enter_context(patch("fedlens.client.update.record_mode.add_step_noise", on_node))
        yield


def _short(values: Floats, longest: float) -> Floats:
    return values * min(1.0, longest / max(1e-300, float(np.linalg.norm(values))))
