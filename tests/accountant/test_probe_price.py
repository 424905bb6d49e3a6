"""A probe's price before, and the interval of its answer after."""

from __future__ import annotations

import numpy as np
import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.accountant.probing import (
    deviation_of,
    estimate_of,
    price_of,
    probe_event,
    probe_noise,
)
from fedlens.foundation.errors import WrongUse


@pytest.mark.parametrize(("epsilon", "users"), [(0.1, 3000), (0.3, 1000)])
def test_a_share_is_known_to_a_point_and_a_half_or_so_for_little(epsilon, users):
    price = price_of(epsilon, 1e-6, users)
    assert price.epsilon <= epsilon and price.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert price.half_width / 1.96 < 0.016
    assert price.bayesian_epsilon > 0 and price.bayesian_delta == 1e-10
    assert price.budget is None and price.refusal is None and price.spent == 0


def test_what_was_spent_before_is_composed_with_it():
    before = [probe_event(5.0), probe_event(7.0)]
    account = DifferentialAccountant()
    for event in [*before, probe_event(probe_noise(0.3, 1e-6))]:
        account.compose(event)
    price = price_of(0.3, 1e-6, 1000, prior=before)
    assert price.together == pytest.approx(account.epsilon(1e-6).epsilon)
    assert price.spent < price.together < price.spent + price.epsilon


def test_a_population_that_cannot_pay_says_so_beforehand(tmp_path):
    terms = PopulationTerms("clinic", "user", 1e-6, 0.35, probe_epsilon=0.2)
    population = Population.create(tmp_path / "clinic", terms)
    assert price_of(0.15, 1e-6, 1000, population=population).refusal is None
    assert "leaves to probes" in price_of(0.3, 1e-6, 1000, population=population).refusal
    assert price_of(0.5, 1e-6, 1000, population=population).to_json()["refusal"]
    assert len(population.ledger) == 0


@pytest.mark.parametrize("given", [{"epsilon": 0}, {"delta": 0}, {"users": 0}, {"epsilon": -1}])
def test_numbers_that_cannot_be_are_refused(given):
    with pytest.raises(WrongUse):
        price_of(**{"epsilon": 0.3, "delta": 1e-6, "users": 100, **given})


@pytest.mark.parametrize("share", [0.02, 0.3, 0.97])
def test_intervals_hold_the_truth_as_often_as_they_say(share):
    """Users drawn at random each time, then noise: both intervals, over 2,000 repetitions."""
    source, users = np.random.default_rng(4), 1000
    deviation = deviation_of(14.0, users, 0.02)
    own, all_ = 0, 0
    for _ in range(2000):
        mean = source.binomial(users, share) / users
        found = estimate_of(mean + deviation * source.standard_normal(), deviation, users)
        assert 0 <= found.wider_low <= found.low <= found.value <= found.high <= found.wider_high
        own += found.low <= mean <= found.high
        all_ += found.wider_low <= share <= found.wider_high
    assert 0.935 <= own / 2000 <= 0.975
    assert all_ / 2000 >= 0.94
