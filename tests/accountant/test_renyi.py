"""Rényi divergences against 60-digit figures, adaptive integration and binomial sums."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from fedlens.accountant.dp.binomial import log_moment
from fedlens.accountant.dp.renyi import (
    DEFAULT_ORDERS,
    deltas,
    epsilons,
    quadrature,
    renyi_divergences,
)


def log_moment_by_quadrature(alpha, q, z):
    return float(quadrature(np.array([float(alpha)]), q, z)[0])


def log_moment_by_sum(alpha, q, z):
    return float(log_moment(alpha, q, np.array([1 / (2 * z * z)]))[0])


def test_log_moments_at_fractional_orders_are_exact(oracles):
    for case in oracles["rdp_log_A_check"]:
        ours = log_moment_by_quadrature(case["alpha"], case["q"], case["sigma"])
        assert ours == pytest.approx(case["exact_log_A_forward"], rel=1e-13)
        assert ours > case["exact_log_A_reverse"]


@pytest.mark.parametrize(
    ("q", "z"), [(0.01, 1), (1e-6, 0.5), (0.5, 10), (0.9, 0.5), (0.01, 100), (0.3, 0.06), (1e-4, 3)]
)
def test_quadrature_and_binomial_sum_agree_where_both_apply(q, z):
    for alpha in (2, 3, 8, 33, 200):
        expected = log_moment_by_sum(alpha, q, z)
        assert log_moment_by_quadrature(alpha, q, z) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("alpha", [1.001, 1.05, 1.5, 2.7, 6.3])
@pytest.mark.parametrize(("q", "z"), [(0.02, 0.7), (0.5, 1.3), (0.95, 4.0)])
def test_quadrature_agrees_with_adaptive_integration(alpha, q, z):
    def density_times_excess(x):
        ratio = 1 + q * math.expm1((2 * x - 1) / (2 * z * z))
        return norm.pdf(x, scale=z) * (ratio**alpha - 1 - alpha * (ratio - 1))

    points = [0.0, 0.5, 1.0, alpha]
    expected, _ = quad(
        density_times_excess, -12 * z, alpha + 12 * z, points=points, epsabs=0, limit=400
    )
    ours = math.expm1(log_moment_by_quadrature(alpha, q, z))
    assert ours == pytest.approx(expected, rel=1e-6)


def test_small_rates_keep_their_digits(oracles):
    for case in oracles["extra"]["small_q_numerics"]:
        a = np.array([case["d"] ** 2 / 2])
        ours = float(log_moment(case["lam"] + 1, case["q"], a)[0])
        assert ours == pytest.approx(case["exact"], rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 0.999), st.floats(1e-4, 50))
def test_divergences_grow_with_the_order_and_stay_below_those_without_sampling(q, z):
    ours = renyi_divergences(q, z, DEFAULT_ORDERS)
    if z >= 0.05:
        assert (np.diff(ours) >= -1e-11 * ours[1:]).all()
    assert (ours > 0).all()
    assert (ours <= np.array(DEFAULT_ORDERS) / (2 * z * z) * (1 + 1e-12)).all()


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-4, 0.9), st.floats(0.04, 20), st.floats(1.01, 2))
def test_divergences_fall_with_noise_and_rise_with_the_rate(q, z, factor):
    base = renyi_divergences(q, z, DEFAULT_ORDERS)
    slack = 1 + 1e-11
    assert (renyi_divergences(q, z * factor, DEFAULT_ORDERS) <= base * slack).all()
    assert (renyi_divergences(min(1.0, q * factor), z, DEFAULT_ORDERS) >= base / slack).all()


def test_the_bound_for_tiny_noise_lies_above_the_exact_value_by_little():
    q, z, alpha = 0.1, 0.049, 1.5
    bound = renyi_divergences(q, z, (alpha,))[0] * (alpha - 1)
    exact = log_moment_by_quadrature(alpha, q, z)
    assert exact <= bound <= exact + math.log(1 / q)


def test_noiseless_and_unsampled_releases():
    assert np.isinf(renyi_divergences(0.1, 0.0, DEFAULT_ORDERS)).all()
    np.testing.assert_allclose(renyi_divergences(1.0, 2.0, (1.5, 8.0)), [1.5 / 8, 1.0])


def test_cached_divergences_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        renyi_divergences(0.1, 1.0, DEFAULT_ORDERS)[0] = 0.0


@settings(deadline=None)
@given(st.floats(1e-6, 50), st.floats(1e-12, 0.5), st.sampled_from(DEFAULT_ORDERS))
def test_both_conversions_are_each_others_inverse(divergence, delta, order):
    rho, alpha = np.array([divergence]), np.array([order])
    epsilon = float(epsilons(rho, alpha, delta)[0])
    assert deltas(rho, alpha, epsilon)[0] <= delta * (1 + 1e-6)
    if epsilon > 0:
        assert deltas(rho, alpha, epsilon)[0] == pytest.approx(delta, rel=1e-6)


def test_the_conversion_holds_for_the_gaussian_mechanism():
    """The analytic Gaussian profile is exact; no conversion may fall below it."""
    alphas = np.array(DEFAULT_ORDERS)
    for z in (0.3, 1.0, 5.0, 80.0):
        for epsilon in (0.0, 0.01, 0.5, 3.0, 20.0):
            exact = norm.cdf(0.5 / z - epsilon * z) - math.exp(epsilon) * norm.cdf(
                -0.5 / z - epsilon * z
            )
            assert deltas(alphas / (2 * z * z), alphas, epsilon).min() >= exact
