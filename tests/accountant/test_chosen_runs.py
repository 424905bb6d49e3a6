"""Runs whose settings are chosen by what earlier ones released: what their population then keeps.

The first release is seen, and the next is chosen by it out of many that the budget allows. What is
lost then is no figure of any accountant, so it is integrated here over the first release.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.dp.filter import KEPT, PrivacyFilter, default_order
from fedlens.accountant.dp.moments import MomentsAccountant
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.population import OutOfBudget, Population, PopulationTerms
from fedlens.accountant.ledger.spending import PROBE

DELTA, EPSILON = 1e-5, 2.0
RATES = (1.0, 0.3, 0.1, 0.01, 1e-3, 1e-5)


def release(q, z):
    return SubsampledGaussian("user", "none" if q == 1 else "poisson", "add-remove", q, z, 1.0)


def by_what_accountants_say(first):
    """Whether a release fits, by the best bound on what was chosen beforehand."""
    account = DifferentialAccountant()
    account.compose(first)
    return lambda event: not account.would_exceed(event, epsilon=EPSILON, delta=DELTA)


def by_the_population(folder, first):
    population = Population.create(folder, PopulationTerms("clinic", "user", DELTA, EPSILON))
    population.charge(first, run="first", number=1)
    return lambda event: population.refusal(event) is None


def least_noise(fits, q):
    """The least z with which a release of rate q fits, within a millionth."""
    low, high = 1e-3, 1e4
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(release(q, middle)) else (middle, high)
    return high


def removed(epsilon, q, z):
    """δ of one release at any real ε, the unit being removed."""
    over = np.expm1(epsilon) + q
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = np.where(over > 0, 0.5 + z * z * (np.log(over) - np.log(q)), -np.inf)
    above, shifted = ndtr(-threshold / z), ndtr((1 - threshold) / z)
    return (1 - q) * above + q * shifted - np.exp(epsilon) * above


def added(epsilon, q, z):
    left = np.expm1(-epsilon) + q
    with np.errstate(divide="ignore", invalid="ignore"):
        threshold = np.where(left > 0, 0.5 + z * z * (np.log(left) - np.log(q)), -np.inf)
    below, shifted = ndtr(threshold / z), ndtr((threshold - 1) / z)
    return below - np.exp(epsilon) * ((1 - q) * below + q * shifted)


def worst_delta(z, continuations):
    """δ at `EPSILON` of a first release with noise z and the next that is worst after it.

    The second's profile is averaged over the first one's outcomes, in both directions; and of each
    continuation by itself.
    """
    x = np.linspace(-12 * z, 12 * z + 1, 20_001)
    cell, loss = x[1] - x[0], (2 * x - 1) / (2 * z * z)
    density = [np.exp(-0.5 * ((x - at) / z) ** 2) / (z * np.sqrt(2 * np.pi)) for at in (0, 1)]
    out = np.array([removed(EPSILON - loss, *one) for one in continuations])
    back = np.array([added(EPSILON + loss, *one) for one in continuations])
    chosen = max(density[1] @ out.max(axis=0), density[0] @ back.max(axis=0)) * cell
    alone = np.maximum(out @ density[1], back @ density[0]) * cell
    return chosen, alone


@pytest.mark.law("2: a budget holds however runs are chosen")
@pytest.mark.parametrize("z", [2.5, 4.0])
def test_a_run_that_is_chosen_by_a_release_stays_within_the_budget(z, tmp_path):
    first = release(1.0, z)
    fits = by_what_accountants_say(first)
    chosen, alone = worst_delta(z, [(q, least_noise(fits, q)) for q in RATES])
    assert alone.max() < 1.01 * DELTA
    assert chosen > 1.8 * DELTA  # what accountants say of fixed settings is no filter
    fits = by_the_population(tmp_path, first)
    chosen, _ = worst_delta(z, [(q, least_noise(fits, q)) for q in RATES])
    assert chosen <= DELTA


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 8.0, 1e6])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_the_order_keeps_nearly_all_rounds_of_all_users(epsilon, delta):
    """Against moments accountants, which may take the best order for settings fixed beforehand."""
    event = release(1.0, 1000.0)
    made, account = (
        PrivacyFilter(epsilon, delta, default_order(epsilon, delta)),
        MomentsAccountant(),
    )
    kept, best = made.rounds_of(event), made.rounds_beforehand(event)
    assert KEPT * best - 1 <= kept <= best
    assert not account.would_exceed(replace(event, count=best), epsilon=epsilon, delta=delta)
    assert account.would_exceed(replace(event, count=best + 1), epsilon=epsilon, delta=delta)
    account.compose(event, kept)
    assert account.epsilon(delta).epsilon <= epsilon


def test_draws_with_little_noise_are_left_most_of_their_rounds():
    """At the best order for releases of all users they would get 14 of 881."""
    made, event = PrivacyFilter(EPSILON, DELTA, default_order(EPSILON, DELTA)), release(0.01, 1.0)
    assert made.rounds_beforehand(event) == 881
    assert made.rounds_of(event) > 700


def test_what_is_admitted_adds_up_at_one_order_whichever_runs_and_whenever_they_stop(tmp_path):
    terms = PopulationTerms("clinic", "user", DELTA, EPSILON, order=8.0)
    population = Population.create(tmp_path / "clinic", terms)
    events = [release(1.0, 9.0), release(0.1, 2.0), release(0.01, 0.9)]
    spent, number = 0.0, 0
    for event in events:  # three runs, each stopped after some of its rounds
        price = terms.filter.price(event.mechanism)
        for _ in range(int(0.3 * terms.filter.total / price)):
            number, spent = number + 1, spent + price
            population.charge(event, run=str(event.noise_multiplier), number=number)
    assert population.share_spent() == pytest.approx(spent / terms.filter.total)
    assert population.share_spent(after=events[0]) > population.share_spent()
    for event in events:
        left = population.rounds_left(event)
        price = terms.filter.price(event.mechanism)
        assert left == int((terms.filter.total - spent) / price)
        with pytest.raises(OutOfBudget, match=r"filter of order 8 .*% used"):
            population.charge(replace(event, count=left + 1), run="r", number=1)
    assert population.spent().epsilon < EPSILON


@pytest.mark.law("2: a budget holds however runs are chosen")
def test_probes_are_limited_as_if_everybody_answered_each(tmp_path):
    """Then what they cost is one number, and choosing among them gains nothing."""
    one = release(1.0, 6.0)
    account = DifferentialAccountant()
    account.compose(one, 2)
    limit = account.epsilon(DELTA).epsilon * (1 + 1e-9)
    terms = PopulationTerms("clinic", "user", DELTA, 100.0, probe_epsilon=limit)
    population = Population.create(tmp_path / "clinic", terms)
    population.charge(release(0.01, 6.0), run="a", number=1, purpose=PROBE)
    population.charge(one, run="b", number=1, purpose=PROBE)
    assert population.spent_on_probes() == account.epsilon(DELTA)
    with pytest.raises(OutOfBudget, match="all probes"):
        population.charge(release(1e-3, 6.0), run="c", number=1, purpose=PROBE)


def test_an_order_that_promises_nothing_is_refused():
    for order in (1.0, 0.5, -3.0, float("nan"), float("inf"), 2.0):
        with pytest.raises(ValueError, match="order"):
            PopulationTerms("clinic", "user", DELTA, 0.5, order=order)
    with pytest.raises(ValueError, match="epsilon = 1e-05"):
        PopulationTerms("clinic", "user", DELTA, 1e-5)
