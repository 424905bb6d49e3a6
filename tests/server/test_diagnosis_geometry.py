"""The linear model on made-up users: what is not there is not found, by any draw of a reference."""

from __future__ import annotations

import numpy as np
import pytest

from fedlens.diagnosis.expected import halves
from fedlens.diagnosis.fitting import left_over
from fedlens.diagnosis.model import Disturbance, Geometry

WIDE, USERS, KNOWN = 400, 1000, 40


def model_of(seed: int, *, noise: float = 1.0, share: float = 0.0):
    """One draw of users, of a reference and of noise; two faults, of which the first may be there.

    The second makes users' updates smaller and a little different, as most faults do.
    """
    source = np.random.default_rng(seed)
    truth = np.random.default_rng(0).normal(0, 1, (3, WIDE)).astype(np.float32) / noise
    middle, first = truth[0], truth[1]
    changes = [first, -0.2 * middle + 0.05 * truth[2]]

    def users(count: int):
        return middle + source.normal(0, 3 / noise, (count, WIDE)).astype(np.float32)

    sound = users(KNOWN)
    base = halves(sound)
    size = np.float32(np.sqrt((1 / KNOWN + 1 / USERS) / (KNOWN / 2)))
    chances = [size * (sound[i::2] - half) for i, half in enumerate((base.one, base.other))]
    drifts = [0.5 * base.one[None], 0.5 * base.other[None]]
    geometry = Geometry(base, Disturbance(*chances, *drifts))
    geometry.add([halves(sound + change) for change in changes])
    seen = users(USERS).mean(0) + share * first + source.normal(0, 1, WIDE)
    return geometry.model(geometry.project(seen[None].astype(np.float32))[0])


def test_a_drift_that_is_shut_out_makes_no_fault_of_the_references_own_error():
    """A filter that knew the drift from the half that judges it would see its error, negated."""
    z = np.array([left_over(model_of(seed), []).z for seed in range(150)])
    assert np.isfinite(z).all()
    assert np.abs(z.mean(0)).max() < 4 / np.sqrt(150)
    assert z.std(0).max() < 1.3


@pytest.mark.parametrize("noise", [1.0, 0.1, 0.01])
def test_the_less_noise_there_is_the_surer_a_fault_is(noise):
    """Also where noise is so small that a few reference users do not show all that chance does."""
    z = np.mean([left_over(model_of(seed, noise=noise, share=0.1), []).z[0] for seed in range(5)])
    quiet = np.mean([left_over(model_of(seed, share=0.1), []).z[0] for seed in range(5)])
    assert z >= quiet - 1e-9
