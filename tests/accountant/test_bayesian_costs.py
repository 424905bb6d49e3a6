"""The Bayesian accountant's arithmetic against 60-digit figures and the authors' patched code."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_sides import left_log_moments, right_log_moments

from fedlens.accountant.bayesian.confidence import student_quantile
from fedlens.accountant.bayesian.costs import epsilon_by_order, hoelder_cost, plug_in_cost
from fedlens.accountant.bayesian.norms import BIN_EDGES, NormHistogram


def _pairs():
    vectors = [[math.sin(0.7 * i + 0.3 * j) / (1 + i % 3) for j in range(5)] for i in range(8)]
    return [math.dist(vectors[i], vectors[j]) for i in range(8) for j in range(i + 1, 8)]


def _quantiles(n):
    return (np.arange(n) + 0.5) / n


DISTANCES = {
    "B1": np.linspace(0.01, 0.2, 64),
    "B2": np.linspace(0, 1, 32),
    "B3": 0.05 * (1 + np.cos(np.pi * np.arange(32) / 31)),
    "B4": 0.01 * np.log(1 - _quantiles(128)) ** 2,
    "B5": np.linspace(0.01, 0.1, 64),
    "B6": np.array(_pairs()),
    "B7": np.full(16, 0.1),
    "B8": np.linspace(0.01, 0.2, 64),
    "B9": np.linspace(0.01, 0.2, 64),
    "B10": np.array([0.1, 0.15, 0.2]),
}
SETS = {
    "linspace(0.01,0.2,512)": np.linspace(0.01, 0.2, 512),
    "min(1,0.05*(-log(1-u))**2)": np.minimum(1, 0.05 * np.log(1 - _quantiles(512)) ** 2),
    "0.3+0.4u": 0.3 + 0.4 * _quantiles(512),
}


class Case:
    """One oracle case priced by us: exact direction, and both printed directions' larger cost."""

    def __init__(self, case):
        distances = DISTANCES[case["id"]]
        self.lambdas = np.array(case["lambdas"], dtype=float)
        settings = (case["lambdas"], case["q"], distances, case["sigma"])
        self.quantile = student_quantile(case["gamma_effective"], len(distances))
        power = case["total_steps"] * case["steps_per_call"]
        left, right = (
            case["calls"]
            * hoelder_cost(
                moments(*settings),
                np.ones(len(distances)),
                power=power,
                rounds=case["total_steps"],
                quantile=self.quantile,
            )
            for moments in (left_log_moments, right_log_moments)
        )
        self.cost, self.published = left, np.maximum(left, right)
        self.failure = -math.expm1(case["calls"] * math.log1p(-case["gamma_effective"]))

    def epsilon(self, cost, delta):
        by_order = epsilon_by_order(cost, self.lambdas, float(delta) - self.failure)
        return by_order.min(), int(self.lambdas[by_order.argmin()])


@pytest.fixture(params=DISTANCES)
def case(request, oracles):
    return next(case for case in oracles["bayesian"] if case["id"] == request.param)


def test_costs_agree_with_sixty_digits(case):
    ours = Case(case)
    assert ours.quantile == pytest.approx(case["student_t_quantile"], rel=1e-12)
    np.testing.assert_allclose(ours.cost, case["mpmath60"]["privacy_cost"], rtol=1e-10)
    np.testing.assert_allclose(ours.cost, case["reference"]["privacy_cost"], rtol=3e-5)
    np.testing.assert_allclose(ours.published, case["paper_eq7_max"]["privacy_cost"], rtol=1e-11)


def test_epsilons_agree_with_sixty_digits_and_the_authors_code(case):
    ours = Case(case)
    for delta, expected in case["mpmath60"]["eps_at_delta"].items():
        if expected["eps"] is None:
            with pytest.raises(ValueError, match="delta"):
                ours.epsilon(ours.cost, delta)
            continue
        epsilon, order = ours.epsilon(ours.cost, delta)
        assert (epsilon, order) == (pytest.approx(expected["eps"], rel=1e-12), expected["lam"])
        assert epsilon == pytest.approx(case["reference"]["eps_at_delta"][delta], rel=1e-6)
        published, _ = ours.epsilon(ours.published, delta)
        assert published == pytest.approx(case["paper_eq7_max"]["eps_at_delta"][delta], rel=1e-12)


def test_deltas_agree_with_sixty_digits(case):
    ours = Case(case)
    for epsilon, expected in case["mpmath60"]["delta_at_eps"].items():
        exponent = (ours.cost - ours.lambdas * float(epsilon)).min()
        delta = min(1.0, ours.failure + math.exp(min(exponent, 0.0)))  # equation 8 solved for it
        assert delta == pytest.approx(expected["with_confidence"], rel=1e-11)


def test_norms_all_at_the_clip_give_the_classical_moments_accountant(oracles):
    for case in (c for c in oracles["bayesian"] if c["id"].startswith("DPmode")):
        low, high = (int(n) for n in case["lambdas"].split(".."))
        lambdas = range(low, high + 1)
        cost = case["steps"] * left_log_moments(lambdas, case["q"], [case["C"]], case["sigma"])
        by_order = epsilon_by_order(cost[:, 0], np.array(lambdas, float), case["delta"])
        assert by_order.min() == pytest.approx(case["mpmath_eps"], rel=1e-12)


def epsilon_of(distances, weights, rounds, quantile, rate=0.01, noise=1.0, delta=1e-10):
    lambdas = range(1, 65)
    moments = left_log_moments(lambdas, rate, distances, noise)
    cost = rounds * hoelder_cost(moments, weights, power=rounds, rounds=rounds, quantile=quantile)
    return epsilon_by_order(cost, np.array(lambdas, float), delta).min()


def test_hoelder_is_exact_for_users_who_stay_the_same(oracles):
    for case in oracles["extra"]["hoelder"]:
        distances = SETS[case["set"]]
        ours = epsilon_of(distances, np.ones(512), case["T"], 0.0, delta=case["delta"])
        assert ours == pytest.approx(case["eps_true_fixed_norms"], rel=1e-12)
        assert ours >= case["eps_naive_total_steps_1"] * (1 - 1e-12)


def test_the_histogram_costs_what_was_measured_and_never_less(oracles):
    quantile = student_quantile(1e-16, 512)
    for case in oracles["extra"]["secagg_histogram"]:
        if (case["bins"], case["edges"]) != (64, "linear"):
            continue
        histogram = NormHistogram.from_norms(SETS[case["set"]], 1.0)
        exact = epsilon_of(SETS[case["set"]], np.ones(512), case["T"], quantile)
        binned = epsilon_of(BIN_EDGES, np.array(histogram.counts, float), case["T"], quantile)
        assert exact == pytest.approx(case["eps_exact"], rel=1e-10)
        assert binned == pytest.approx(case["eps_hist"], rel=1e-3)
        assert exact <= binned <= 1.02 * exact


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=20), st.integers(1, 50))
def test_weights_stand_for_repeated_norms(distances, rounds):
    moments = left_log_moments((1, 8, 40), 0.05, distances, 0.8)
    values, times = np.unique(distances, return_counts=True)
    folded = left_log_moments((1, 8, 40), 0.05, values, 0.8)
    settings = {"power": rounds, "rounds": rounds, "quantile": 3.0}
    one_by_one = hoelder_cost(moments, np.ones(len(distances)), **settings)
    together = hoelder_cost(folded, times.astype(float), **settings)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-9, 1), st.floats(0, 5), st.floats(0.05, 10), st.integers(1, 200))
def test_moments_lie_between_nothing_and_no_sampling(rate, distance, noise, order):
    left = left_log_moments((order,), rate, [distance], noise)[0, 0]
    right = right_log_moments((order,), rate, [distance], noise)[0, 0]
    whole = order * (order + 1) * (distance / noise) ** 2 / 2
    for moment in (left, right):
        assert 0 <= moment <= whole * (1 + 1e-9) + 1e-300
    if rate == 1:
        assert left == pytest.approx(right)


def test_a_distance_that_was_not_seen_has_no_say():
    moments = left_log_moments((1, 60), 0.5, [0.1, 0.2, 50.0], 0.5)
    weights, settings = np.array([40.0, 60.0, 0.0]), {"power": 900, "rounds": 900, "quantile": 9.0}
    np.testing.assert_array_equal(
        hoelder_cost(moments, weights, **settings),
        hoelder_cost(moments[:, :2], weights[:2], **settings),
    )
    for nobody in (np.zeros(3), np.array([1.0, -1.0, 1.0])):
        with pytest.raises(ValueError, match="weights"):
            plug_in_cost(moments, nobody)


def test_no_distance_and_no_sampling_cost_nothing():
    assert left_log_moments((1, 512), 0.5, [0.0], 1.0).max() == 0
    assert left_log_moments((1, 512), 0.0, [1.0], 1.0).max() == 0


def test_huge_moments_do_not_overflow():
    moments = left_log_moments((512,), 0.9, [0.3, 1.0], 0.01)
    cost = hoelder_cost(moments, np.array([5.0, 5.0]), power=10**6, rounds=10**6, quantile=40.0)
    assert np.isfinite(cost).all()
    assert np.isfinite(plug_in_cost(moments, np.ones(2))).all()


@pytest.mark.parametrize("distances", [[[0.1]], [np.nan], [np.inf], [-0.1], 0.5])
def test_bad_distances_are_refused(distances):
    with pytest.raises(ValueError, match="distances"):
        left_log_moments((2,), 0.1, distances, 1.0)


@pytest.mark.parametrize("lambdas", [(), (0,), (1.5,), (-2,)])
def test_bad_orders_are_refused(lambdas):
    with pytest.raises(ValueError, match="lambdas"):
        left_log_moments(lambdas, 0.1, [0.1], 1.0)


def test_bad_confidence_is_refused():
    for gamma in (0.0, 0.5, -1e-9, math.nan):
        with pytest.raises(ValueError, match="gamma"):
            student_quantile(gamma, 64)
    with pytest.raises(ValueError, match="observations"):
        student_quantile(1e-6, 2)
    for noise in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="noise_std"):
            left_log_moments((2,), 0.1, [0.1], noise)
    for delta in (0.0, 1.0, -1e-5, math.nan):
        with pytest.raises(ValueError, match="cannot be used"):
            epsilon_by_order(np.ones(1), np.ones(1), delta)


def test_failures_far_below_rounding_still_have_a_quantile():
    quantiles = [student_quantile(gamma, 1000) for gamma in (1e-10, 1e-16, 1e-20, 1e-30)]
    assert quantiles == sorted(quantiles)
    assert quantiles[-1] < 15
