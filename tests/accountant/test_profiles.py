"""Closed-form privacy profiles against direct integration and 40-digit figures."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.accountant.dp.profiles import (
    gaussian_delta,
    gaussian_epsilon,
    sampled_delta,
    sampled_epsilon,
)

mpmath = pytest.importorskip("mpmath")


def exact(epsilon, mu):
    with mpmath.workdps(60):
        near = mpmath.ncdf(mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu)
        far = mpmath.ncdf(-mpmath.mpf(mu) / 2 - mpmath.mpf(epsilon) / mu)
        return near - mpmath.exp(epsilon) * far


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 5.0, 60.0])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 3.0, 6.0, 20.0])
def test_gaussian_profile_is_right_to_its_last_digits(mu, share):
    epsilon = mu * mu / 2 + share * mu
    truth, ours = exact(epsilon, mu), gaussian_delta(epsilon, mu)
    loss_of_digits = 1e-14 * (1 + share**3) * (1 + 1 / mu)
    assert float(truth) * (1 - 1e-14) <= ours or truth < 1e-300
    assert ours <= float(truth) * (1 + 3 * loss_of_digits)


@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-12, 1e-30, 1e-100])
@pytest.mark.parametrize("mu", [0.01, 1.0, 30.0])
def test_epsilon_inverts_and_never_falls_short(mu, delta):
    epsilon = gaussian_epsilon(delta, mu)
    assert exact(epsilon, mu) <= delta
    if epsilon > 0:
        assert exact(epsilon * (1 - 1e-9), mu) > delta * (1 - 1e-6)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-3, 0.999), st.floats(0.3, 5), st.floats(0, 8))
def test_one_sampled_release_against_integration(q, z, epsilon):
    x = np.linspace(-12 * z, 12 * z + 1, 50_001)
    p0 = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
    p1 = np.exp(-0.5 * ((x - 1) / z) ** 2) / (z * math.sqrt(2 * math.pi))
    mixed, grown = (1 - q) * p0 + q * p1, math.exp(epsilon)
    sides = [np.maximum(mixed - grown * p0, 0).sum(), np.maximum(p0 - grown * mixed, 0).sum()]
    truth = max(sides) * (x[1] - x[0])
    assert sampled_delta(epsilon, q, 1 / z) == pytest.approx(truth, rel=1e-4, abs=1e-12)


def test_one_sampled_release_of_the_oracle(oracles):
    for case in oracles["subsampled_gaussian"]:
        if case["T"] == 1 and case["q"] < 1:
            ours = sampled_epsilon(case["delta"], case["q"], 1 / case["sigma"])
            assert ours == pytest.approx(case["exact"]["eps_exact"], rel=1e-11)


def test_sampling_at_rate_one_is_no_sampling():
    for epsilon in (0.0, 0.3, 4.0, 50.0):
        assert sampled_delta(epsilon, 1.0, 1.3) == pytest.approx(gaussian_delta(epsilon, 1.3))
