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
from fedlens.accountant.bayesian.pair_moments import pair_log_moments
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


def log_plane_integral(log_integrand, reach, step):
    x = np.arange(-reach, reach, step)
    return logsumexp(log_integrand(*np.meshgrid(x, x))) + 2 * math.log(step)


def triangle(source, rest):
    """Three means in the plane, none more than 1 from another; the first with the rest's sum."""
    while True:
        points = source.uniform(-0.5, 0.5, (3, 2)) * rest
        sides = [np.linalg.norm(points[i] - points[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
        if max(sides) <= 1:
            return points, sides[2]


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.9])
@pytest.mark.parametrize(("noise", "order"), [(0.4, 1), (0.5, 3), (2.0, 3), (2.0, 6)])
def test_a_replaced_unit_s_bound_holds_wherever_the_rest_lies(rate, noise, order):
    """(1−q)·P₀ + q·P₁ against (1−q)·P₀ + q·P₂ in the plane, integrated."""
    source = np.random.default_rng(5)
    for rest in (0.2, 1.0, 1.4, 1.4):
        (without, one, two), distance = triangle(source, rest)

        def gaussian(x, y, mean):
            return norm.logpdf(x, mean[0], noise) + norm.logpdf(y, mean[1], noise)

        def mixture(x, y, mean, without=without, gaussian=gaussian):
            away = math.log1p(-rate) + gaussian(x, y, without)
            return np.logaddexp(away, math.log(rate) + gaussian(x, y, mean))

        def integrand(x, y, one=one, two=two, mixture=mixture):
            return (order + 1) * mixture(x, y, one) - order * mixture(x, y, two)

        found = log_plane_integral(integrand, order + 2 + 8 * noise, noise / 5)
        bound = pair_log_moments((order,), rate, [distance], noise)[0, 0]
        assert found <= bound + 1e-11


def test_replacing_under_sampling_costs_of_the_order_of_the_rate_squared():
    small, tiny = (pair_log_moments((4,), q, [0.5], 2.0)[0, 0] for q in (1e-3, 1e-5))
    assert tiny == pytest.approx(small * 1e-4, rel=0.01)
    whole = pair_log_moments((4,), 1.0, [0.3], 0.8)[0, 0]
    assert whole == pytest.approx(4 * 5 * (0.3 / 0.8) ** 2 / 2)


def test_the_order_of_distances_does_not_matter():
    distances = np.random.default_rng(0).uniform(0, 1, 50)
    shuffled = np.random.default_rng(1).permutation(50)
    for function in (left_log_moments, right_log_moments, pair_log_moments):
        straight = function(ORDERS, 0.03, distances, 0.6)
        other = function(ORDERS, 0.03, distances[shuffled], 0.6)
        np.testing.assert_allclose(other, straight[:, shuffled], rtol=1e-12)


@pytest.mark.parametrize("lambdas", [(), (0,), (1.5,), (-2,), (math.nan,), (math.inf,), (True,)])
def test_orders_that_are_no_whole_numbers_are_refused(lambdas):
    with pytest.raises(ValueError, match="lambdas"):
        left_log_moments(lambdas, 0.1, [0.1], 1.0)
