"""Both accountants side by side: the least valid figure, asked as a training run asks."""

import itertools
import math
import time

import pytest

from fedlens.accountant.bounds import NOTHING_SPENT
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import GaussianRelease

HISTOGRAM = GaussianRelease("user", "add-remove", 1.0, 12.0, released="histogram")


def booked(*pairs):
    accountant = DifferentialAccountant()
    for event, count in pairs:
        accountant.compose(event, count)
    return accountant


def test_the_least_valid_figure_says_where_it_is_from(make_event):
    assert booked((make_event(), 100)).epsilon(1e-5).method == "contour"
    assert booked((make_event(), 1)).epsilon(1e-5).method == "analytic"
    assert booked((HISTOGRAM, 5)).epsilon(1e-5).method == "analytic"


def test_the_figure_is_the_minimum(make_event):
    accountant = booked((make_event(0.03, 1.3), 700), (HISTOGRAM, 2))
    for delta in (1e-2, 1e-6, 1e-12):
        bounds = accountant.tight(delta), accountant.rdp(delta)
        assert accountant.epsilon(delta).epsilon == min(bound.epsilon for bound in bounds)
        assert accountant.delta(accountant.epsilon(delta).epsilon) == pytest.approx(delta, rel=1e-4)


def test_the_order_of_booking_does_not_matter(make_event):
    parts = [(make_event(0.02, 1.1), 50), (make_event(0.1, 3.0), 20), (HISTOGRAM, 3)]
    figures = {booked(*order).epsilon(1e-6) for order in itertools.permutations(parts)}
    assert len(figures) == 1


def test_everything_that_is_added_costs(make_event):
    spent = [booked((make_event(0.02, 1.1), n)).epsilon(1e-6).epsilon for n in (100, 101, 150)]
    both = booked((make_event(0.02, 1.1), 100), (HISTOGRAM, 1)).epsilon(1e-6).epsilon
    assert spent[0] < spent[1] < spent[2]
    assert both > spent[0]


def test_would_exceed_answers_before_and_changes_nothing(make_event):
    event = make_event(0.05, 2.0)
    accountant = booked((event, 99))
    before, after = accountant.epsilon(1e-5), booked((event, 100)).epsilon(1e-5).epsilon
    assert not accountant.would_exceed(event, epsilon=after * (1 + 1e-9), delta=1e-5)
    assert accountant.would_exceed(event, epsilon=after * (1 - 1e-6), delta=1e-5)
    assert accountant.epsilon(1e-5) == before


def test_the_tight_figure_allows_what_the_moments_would_refuse(make_event):
    event = make_event(0.01, 1.0)
    accountant = booked((event, 999))
    budget = (accountant.tight(1e-5).epsilon + accountant.rdp(1e-5).epsilon) / 2
    assert not accountant.would_exceed(event, epsilon=budget, delta=1e-5)


def test_nothing_and_no_noise(make_event):
    assert DifferentialAccountant().epsilon(1e-5) == NOTHING_SPENT
    assert DifferentialAccountant().delta(0.0) == 0
    bare = booked((make_event(), 10), (make_event(noise=0.0), 1))
    assert bare.epsilon(1e-5).epsilon == math.inf
    assert bare.delta(3.0) == 1.0
    assert booked((make_event(), 1)).would_exceed(make_event(noise=0.0), epsilon=99, delta=1e-5)


def test_bad_queries_are_refused(make_event):
    accountant = booked((make_event(), 3))
    for delta in (0.0, 1.0, -1.0, math.nan):
        for ask in (accountant.epsilon, accountant.tight, accountant.rdp):
            with pytest.raises(ValueError, match="delta"):
                ask(delta)
        with pytest.raises(ValueError, match="delta"):
            DifferentialAccountant().epsilon(delta)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ValueError, match="epsilon"):
            accountant.delta(epsilon)
        with pytest.raises(ValueError, match="epsilon"):
            accountant.would_exceed(make_event(), epsilon=epsilon, delta=1e-5)
    with pytest.raises(ValueError, match="count"):
        accountant.compose(make_event(), 0)


def test_a_round_of_training_asks_quickly(make_event):
    event = make_event(0.0123, 1.17)
    accountant = booked((event, 500))
    accountant.epsilon(1e-6)
    started = time.process_time()
    for _ in range(20):
        assert not accountant.would_exceed(event, epsilon=50, delta=1e-6)
        accountant.compose(event)
        for _ in range(5):
            accountant.epsilon(1e-6)
    assert (time.process_time() - started) / 20 < 0.03
