"""The moments accountant against two outside libraries, exact figures and its own laws."""

import itertools
import math
import time
import warnings

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.accountant.dp.moments import DEFAULT_ORDERS, MomentsAccountant
from fedlens.accountant.events import SubsampledGaussian

WHOLE_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512)

rates = st.floats(1e-5, 1)
noises = st.floats(0.3, 20)
deltas = st.floats(1e-12, 0.1)


def spent(event, rounds, delta, orders=DEFAULT_ORDERS):
    accountant = MomentsAccountant(orders)
    accountant.compose(event, rounds)
    return accountant.epsilon(delta)


def test_whole_orders_agree_with_sixty_digits(oracles, make_event):
    for case in oracles["subsampled_gaussian"]:
        figures = case["rdp_integer_orders_mpmath"]
        bound = spent(make_event(case["q"], case["sigma"]), case["T"], case["delta"], WHOLE_ORDERS)
        assert bound.epsilon == pytest.approx(float(figures["eps_cks"]), rel=1e-12)
        assert bound.order == figures["order"]


@pytest.mark.law("5: DP figures are never below the truth")
def test_never_below_the_truth_and_never_above_other_moments_accountants(oracles, make_event):
    for case in oracles["subsampled_gaussian"]:
        ours = spent(make_event(case["q"], case["sigma"]), case["T"], case["delta"]).epsilon
        peers = case["peers"]
        assert ours <= min(peers["opacus_rdp"]["eps"], peers["dpa_rdp"]["eps"]) + 1e-8, case["id"]
        assert ours >= peers["opacus_rdp"]["eps"] * 0.99, case["id"]
        if "exact" in case:
            assert ours >= case["exact"]["eps_exact"], case["id"]


@pytest.mark.parametrize(
    ("rate", "noise", "rounds"),
    list(itertools.product((0.001, 0.05, 0.5, 1.0), (0.6, 1.5, 8.0), (1, 300))),
)
def test_same_orders_same_figure_as_dp_accounting(rate, noise, rounds, make_event):
    theirs = RdpAccountant(WHOLE_ORDERS)
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    theirs.compose(event, rounds)
    for delta in (1e-5, 1e-10):
        ours = spent(make_event(rate, noise), rounds, delta, WHOLE_ORDERS)
        assert ours.epsilon == pytest.approx(theirs.get_epsilon(delta), rel=1e-9, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(rates, noises, deltas, st.integers(1, 1000), st.floats(1.01, 3))
def test_epsilon_moves_the_right_way(rate, noise, delta, rounds, factor):
    def epsilon(rate=rate, noise=noise, rounds=rounds, delta=delta):
        event = SubsampledGaussian("user", "poisson", "add-remove", rate, noise, 1.0)
        return spent(event, rounds, delta).epsilon

    base, slack = epsilon(), 1e-9
    assert epsilon(rounds=rounds + 1) >= base - slack
    assert epsilon(noise=noise * factor) <= base + slack
    assert epsilon(rate=min(1.0, rate * factor)) >= base - slack
    assert epsilon(delta=min(0.5, delta * factor)) <= base + slack


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from((0.01, 0.3, 1.0)), st.floats(0.5, 9)), max_size=6))
def test_the_order_of_events_does_not_matter_and_counts_add(parts):
    events = [SubsampledGaussian("user", "poisson", "add-remove", q, z, 1.0) for q, z in parts]
    forward, backward, twice = MomentsAccountant(), MomentsAccountant(), MomentsAccountant()
    for event in events:
        forward.compose(event)
        forward.compose(event)
        twice.compose(event, 2)
    for event in reversed(events):
        backward.compose(event, 2)
    assert forward.epsilon(1e-5) == backward.epsilon(1e-5) == twice.epsilon(1e-5)


def test_an_event_of_many_releases_costs_as_much_as_many_events(make_event):
    assert spent(make_event(count=30), 2, 1e-5) == spent(make_event(), 60, 1e-5)


def test_delta_inverts_epsilon(make_event):
    accountant = MomentsAccountant()
    accountant.compose(make_event(0.02, 0.9), 200)
    for delta in (1e-3, 1e-5, 1e-10):
        assert accountant.delta(accountant.epsilon(delta).epsilon) == pytest.approx(delta)


def test_would_exceed_answers_before_and_changes_nothing(make_event):
    accountant, event = MomentsAccountant(), make_event(0.05, 2.0)
    accountant.compose(event, 99)
    before = accountant.epsilon(1e-5)
    after = spent(event, 100, 1e-5).epsilon
    assert not accountant.would_exceed(event, epsilon=after, delta=1e-5)
    assert accountant.would_exceed(event, epsilon=math.nextafter(after, 0), delta=1e-5)
    assert accountant.epsilon(1e-5) == before


def test_nothing_booked_costs_nothing():
    assert MomentsAccountant().epsilon(1e-5).epsilon == 0
    assert MomentsAccountant().delta(0.0) == 0


def test_no_noise_is_infinite_and_silent(make_event):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accountant = MomentsAccountant()
        accountant.compose(make_event(), 5)
        assert accountant.would_exceed(make_event(noise=0.0), epsilon=1e9, delta=1e-5)
        accountant.compose(make_event(noise=0.0))
        assert accountant.epsilon(1e-5).epsilon == math.inf
        assert accountant.delta(100.0) == 1.0


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.03, 0.06, 1e3, 1e8])
@pytest.mark.parametrize("rate", [1e-12, 1e-3, 0.999999, 1.0])
def test_extreme_settings_give_finite_figures_without_warnings(rate, noise, make_event):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = spent(make_event(rate, noise), 10**6, 1e-10)
    assert 0 <= bound.epsilon < math.inf


def test_a_query_is_quick(make_event):
    accountant = MomentsAccountant()
    for rate in np.linspace(0.01, 0.2, 20):
        accountant.compose(make_event(float(rate), 1.5), 1000)
    accountant.epsilon(1e-5)
    started = time.process_time()
    for _ in range(50):
        accountant.compose(make_event(0.01, 1.5))
        accountant.would_exceed(make_event(0.01, 1.5), epsilon=1, delta=1e-5)
        accountant.epsilon(1e-5)
    assert (time.process_time() - started) / 50 < 0.01


def test_bad_queries_are_refused(make_event):
    accountant = MomentsAccountant()
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            accountant.epsilon(delta)
    with pytest.raises(ValueError, match="epsilon"):
        accountant.delta(-1.0)
    with pytest.raises(ValueError, match="count"):
        accountant.compose(make_event(), 0)
    with pytest.raises(ValueError, match="orders"):
        MomentsAccountant([1.0, 2.0])
