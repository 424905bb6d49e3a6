"""Private splits in a population's ledger: two sides of one in parallel, all else added up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.population import OutOfBudget, Population, PopulationTerms
from fedlens.accountant.ledger.spending import PROBE, SPLIT, split_side
from fedlens.accountant.ledger.terms import NAME

EVENT = SubsampledGaussian("user", "none", "add-remove", 1.0, 8.0, 1.0)
OTHER = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 1.0, 1.0)
DELTA = 1e-5
LOW, HIGH = split_side("ab" * 32, "below"), split_side("ab" * 32, "from")


def cost(*counts) -> float:
    account = DifferentialAccountant()
    for event, rounds in counts:
        account.compose(event, rounds)
    return account.epsilon(DELTA).epsilon


@pytest.fixture
def made(tmp_path):
    def create(**terms) -> Population:
        fields = {"unit": "user", "delta": DELTA, "epsilon_budget": 100.0, **terms}
        return Population.create(tmp_path / "clinic", PopulationTerms("clinic", **fields))

    return create


def spend(population, users="", rounds=1, event=EVENT, purpose="training round"):
    for number in range(rounds):
        population.charge(event, run="abc", number=number, purpose=purpose, users=users)


@pytest.mark.law("2: only disjoint groups compose in parallel")
def test_two_sides_cost_what_the_dearer_does_in_whichever_order(made, tmp_path):
    population = made()
    spend(population)  # of the model, about everyone
    for users, rounds in ((LOW, 2), (HIGH, 1), (HIGH, 1), (LOW, 1), (HIGH, 2)):
        spend(population, users, rounds)
    assert population.spent().epsilon == pytest.approx(cost((EVENT, 5)))  # 1 + max(3, 4)
    assert Population.open(tmp_path / "clinic").spent() == population.spent()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(split_side("cd" * 32, "from"), id="another model, threshold, rule or cap"),
        pytest.param(LOW, id="the same side"),
        pytest.param("app_version=1.0", id="a slice"),
        pytest.param("", id="everyone"),
        pytest.param(f"{SPLIT}{'ab' * 32}=middle", id="no side that there is"),
    ],
)
@pytest.mark.parametrize("slices", ["", "app_version"])
@pytest.mark.law("2: only disjoint groups compose in parallel")
def test_whatever_else_may_share_users_adds_up(made, other, slices):
    population = made(slices=slices)
    spend(population, LOW, 2)
    spend(population, other, 2)
    assert population.spent().epsilon == pytest.approx(cost((EVENT, 4)))


def test_a_slice_beside_a_split_pays_for_its_own_and_the_split(made):
    population = made(slices="app_version")
    spend(population, LOW, 2)
    spend(population, "app_version=1.0", 1)
    spend(population, HIGH, 3)
    spend(population, "app_version=2.0", 2)
    assert population.spent("app_version=1.0").epsilon == pytest.approx(cost((EVENT, 4)))
    assert population.spent().epsilon == pytest.approx(cost((EVENT, 5)))


def test_sides_of_different_mechanisms_pay_for_both(made):
    """The model may send a user to the more expensive side: both schedules must be paid for.

    With q, z of each side's own, neither need dominate the other at every δ.
    """
    population = made()
    spend(population, LOW, 2)
    spend(population, HIGH, 30, event=OTHER)
    assert population.spent().epsilon == pytest.approx(cost((EVENT, 2), (OTHER, 30)))
    larger = max(cost((EVENT, 2)), cost((OTHER, 30)))
    assert population.spent().epsilon > larger
    relabelled = replace(EVENT, released="a critic", clipping_norm=0.3)  # which cost nothing more
    spend(population, HIGH, 2, event=relabelled)
    assert population.spent().epsilon == pytest.approx(cost((EVENT, 2), (OTHER, 30)))


def test_the_budget_is_asked_for_what_is_new_alone(made):
    account = DifferentialAccountant()
    account.compose(EVENT, 3)
    three = account.rdp(DELTA)
    population = made(epsilon_budget=three.epsilon * (1 + 1e-9), order=three.order)
    assert population.affordable([EVENT] * 4, LOW) == 3
    spend(population, LOW, 3)
    assert population.affordable([EVENT] * 4, HIGH) == 3
    assert population.affordable([replace(EVENT, count=3)], HIGH) == 1
    assert population.affordable([EVENT]) == population.affordable([EVENT], LOW) == 0
    spend(population, HIGH, 3)
    for users in (LOW, HIGH, ""):
        with pytest.raises(OutOfBudget):
            spend(population, users)
    assert len(population.ledger) == 6


def test_probes_of_both_sides_count_towards_what_probes_may_cost(made):
    population = made(probe_epsilon=cost((EVENT, 1)) * (1 + 1e-9))
    spend(population, LOW, 1, purpose=PROBE)
    with pytest.raises(OutOfBudget, match="all probes"):
        spend(population, HIGH, 1, purpose=PROBE)


def test_no_declared_attribute_passes_for_a_split():
    assert not NAME.fullmatch(LOW.partition("=")[0])
