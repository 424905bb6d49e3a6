"""Faults of the histogram of norms that a round releases beside its sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.bayesian.noised_norms import PUBLIC_BINS, NoisedNorms, SplitNoise
from fedlens.accountant.bayesian.noised_norms import noised_norms as real
from fedlens.accountant.noise import gaussian
from fedlens.server.round.aggregation import BoundedSum

Floats = NDArray[np.float64]
Change = Callable[[Floats], Floats]
"""What is added, over its deviation, in place of the noise that was drawn, float64 [bins]."""


@contextmanager
def noise_changed(change: Change) -> Iterator[None]:
    """``change`` of the histogram's noise is added in its place."""

    def released(counts: Any, **given: Any) -> NoisedNorms:
        found, noise = real(counts, **given), given["noise"]
        exact = np.asarray(counts, dtype=np.float64).reshape(PUBLIC_BINS, -1).sum(axis=1)
        changed = exact + change((np.array(found.counts) - exact) / noise) * noise
        return replace(found, counts=tuple(changed.tolist()))

    with patch("fedlens.server.round.step.noised_norms", released):
        yield


def first_kept() -> Change:
    """The first noise is added again and again."""
    kept: list[Floats] = []

    def change(noise: Floats) -> Floats:
        kept.append(noise)
        return kept[0]

    return change


def none_in_the_last_bin(noise: Floats) -> Floats:
    """No noise on the users at the clip."""
    return np.append(noise[:-1], 0.0)


@contextmanager
def shared_with_the_sum() -> Iterator[None]:
    """One draw for both: what is added to the sum begins with the histogram's noise."""
    last: list[Floats] = [np.zeros(PUBLIC_BINS)]

    def kept(noise: Floats) -> Floats:
        last[0] = noise
        return noise

    def on_server(total: BoundedSum, **given: Any) -> Floats:
        deviation = given["noise_multiplier"] * total.sensitivity
        rest = gaussian(
            len(total.values) - PUBLIC_BINS,
            noise_multiplier=given["noise_multiplier"],
            sensitivity=total.sensitivity,
            source=given["source"],
        )
        found: Floats = (total.values + np.append(last[0] * deviation, rest)) / given["denominator"]
        return found

    with ExitStack() as stack:
        stack.enter_context(noise_changed(kept))
        stack.enter_context(patch("fedlens.server.round.step.noised_mean", on_server))
        yield


@contextmanager
def counted_twice() -> Iterator[None]:
    """Each user counts twice in the histogram."""

    def released(counts: Any, **given: Any) -> NoisedNorms:
        return real(2 * np.asarray(counts), **given)

    with patch("fedlens.server.round.step.noised_norms", released):
        yield


@contextmanager
def unpaid() -> Iterator[None]:
    """The sum keeps all of the round's budget, and the histogram is given it once more."""
    with patch("fedlens.server.config.mechanism.split_noise", lambda z, share: SplitNoise(z, z)):
        yield
