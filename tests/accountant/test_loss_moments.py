"""Both moments at every order, from one table, against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_sides import left_log_moments, right_log_moments
from scipy.special import logsumexp
from scipy.stats import norm

from fedlens.accountant.bayesian.loss_moments import log_moments
from fedlens.accountant.dp.binomial import log_moment

ORDERS = (1, 2, 7, 30, 64, 200, 512)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
    st.floats(1e-9, 1),
    st.floats(0.01, 100),
)
def test_the_shared_table_gives_each_order_s_own_sum(distances, rate, noise):
    a = (np.array(distances) / noise) ** 2 / 2
    left, right = log_moments(ORDERS, rate, distances, noise)
    for at, order in enumerate(ORDERS):
        for found, expected in (
            (left[at], log_moment(order + 1, rate, a)),
            (right[at], log_moment(order, rate, a, sign=1)),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-290)


def log_integral(log_integrand, low, high):
    """Log ∫ exp by the trapezoid rule, exponentially precise for Gaussians on so fine a grid."""
    x, step = np.linspace(low, high, 400_001, retstep=True)
    return logsumexp(log_integrand(x)) + math.log(step)


@pytest.mark.parametrize("distance", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("order", [1, 5, 12])
def test_the_left_moment_is_the_integral_that_it_stands_for(order, distance):
    """E_p0[(p1/p0)^(λ+1)] with p0 = N(0, s²) and p1 = (1−q)·p0 + q·N(d, s²): no sum over k."""
    rate, noise = 0.2, 0.7

    def integrand(x):
        exponent = (2 * x * distance - distance**2) / (2 * noise**2)
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + exponent)
        return norm.logpdf(x, scale=noise) + (order + 1) * ratio

    found = left_log_moments((order,), rate, [distance], noise)[0, 0]
    assert found == pytest.approx(log_integral(integrand, -20, 40), rel=1e-8)


def test_tiny_rates_keep_their_digits(oracles):
    for case in oracles["extra"]["small_q_numerics"]:
        found = left_log_moments((case["lam"],), case["q"], [case["d"]], 1.0)[0, 0]
        assert found == pytest.approx(case["exact"], rel=1e-11)


def test_the_order_of_distances_does_not_matter():
    distances = np.random.default_rng(0).uniform(0, 1, 50)
    shuffled = np.random.default_rng(1).permutation(50)
    for function in (left_log_moments, right_log_moments):
        straight = function(ORDERS, 0.03, distances, 0.6)
        other = function(ORDERS, 0.03, distances[shuffled], 0.6)
        np.testing.assert_allclose(other, straight[:, shuffled], rtol=1e-12)


@pytest.mark.parametrize("lambdas", [(), (0,), (1.5,), (-2,), (math.nan,), (math.inf,), (True,)])
def test_orders_that_are_no_whole_numbers_are_refused(lambdas):
    with pytest.raises(ValueError, match="lambdas"):
        left_log_moments(lambdas, 0.1, [0.1], 1.0)
