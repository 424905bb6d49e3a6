"""Slices in a population's ledger: disjoint ones in parallel, all others added up."""

from __future__ import annotations

import json

import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.ledger import LedgerError
from fedlens.accountant.ledger.population import OutOfBudget, Population, PopulationTerms
from fedlens.accountant.ledger.spending import PROBE

EVENT = SubsampledGaussian("user", "none", "add-remove", 1.0, 8.0, 1.0)
DELTA = 1e-5


def cost(rounds: int) -> float:
    account = DifferentialAccountant()
    account.compose(EVENT, rounds)
    return account.epsilon(DELTA).epsilon


def budget_for(rounds: int) -> dict[str, float]:
    """Terms whose filter admits so many rounds."""
    account = DifferentialAccountant()
    account.compose(EVENT, rounds)
    bound = account.rdp(DELTA)
    return {"epsilon_budget": bound.epsilon * (1 + 1e-9), "order": bound.order}


@pytest.fixture
def made(tmp_path):
    def create(**terms) -> Population:
        default = budget_for(3) if "epsilon_budget" not in terms else {}
        fields = {**default, "slices": "app_version", **terms}
        return Population.create(
            tmp_path / "clinic", PopulationTerms("clinic", "user", DELTA, **fields)
        )

    return create


def spend(population, users="", rounds=1, purpose="training round"):
    for number in range(rounds):
        population.charge(EVENT, run="abc", number=number, purpose=purpose, users=users)


@pytest.mark.law("2: only disjoint groups compose in parallel")
def test_users_of_a_slice_pay_for_it_and_for_what_is_about_everyone(made, tmp_path):
    population = made()
    spend(population, "app_version=1.0", 2)
    spend(population, "app_version=2.0", 1)
    assert population.spent().epsilon == pytest.approx(cost(2))
    spend(population)  # everyone
    assert population.spent("app_version=1.0").epsilon == pytest.approx(cost(3))
    assert population.spent("app_version=2.0").epsilon == pytest.approx(cost(2))
    assert population.spent("app_version=3.0").epsilon == pytest.approx(cost(1))
    again = Population.open(tmp_path / "clinic")
    assert again.spent() == population.spent()
    lines = (tmp_path / "clinic" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line).get("slice") for line in lines[1:]] == [
        *["app_version=1.0"] * 2,
        "app_version=2.0",
        None,
    ]


def test_a_slice_that_comes_after_everyone_pays_for_everyone(made):
    population = made()
    spend(population, rounds=2)
    spend(population, "app_version=1.0")
    assert population.spent("app_version=1.0").epsilon == pytest.approx(cost(3))
    with pytest.raises(OutOfBudget):
        spend(population, "app_version=1.0")
    with pytest.raises(OutOfBudget):
        spend(population)  # some of everyone are in that slice
    spend(population, "app_version=2.0")


@pytest.mark.parametrize(
    ("declared", "first", "second"),
    [
        ("app_version", "device=phone", "device=tablet"),  # not declared
        ("app_version", "device=phone", "app_version=1.0"),  # may share users
        ("", "app_version=1.0", "app_version=2.0"),  # nothing is declared
        ("app_version", "app_version=", "app_version=2.0"),  # names no value
        ("app_version", "app_version=2.0", "app_version=2.0"),  # the same users
    ],
)
@pytest.mark.law("2: only disjoint groups compose in parallel")
def test_slices_that_could_share_users_add_up(made, declared, first, second):
    population = made(slices=declared)
    spend(population, first, 2)
    spend(population, second, 1)
    assert population.spent().epsilon == pytest.approx(cost(3))
    with pytest.raises(OutOfBudget):
        spend(population, second)


def test_what_slices_cost_is_never_below_what_any_user_pays(made):
    """Every order of the same grants: each user's own entries are composed in full."""
    population = made(epsilon_budget=100.0)
    grants = ["", "app_version=1.0", "device=a", "app_version=2.0", "app_version=1.0", ""]
    for users in grants:
        spend(population, users)
    own = sum(users in ("", "app_version=1.0", "device=a") for users in grants)
    assert population.spent().epsilon == pytest.approx(cost(own))


def test_a_line_whose_slice_was_changed_is_found(made, tmp_path):
    population = made()
    spend(population, "app_version=1.0", 2)
    path = tmp_path / "clinic" / "ledger.jsonl"
    path.write_text(path.read_text().replace("app_version=1.0", "app_version=9.0"))
    with pytest.raises(LedgerError, match="was changed"):
        Population.open(tmp_path / "clinic")


@pytest.mark.law("2: a budget stops a run in time")
def test_probes_stop_at_what_the_owner_left_to_them_whatever_the_budget(made):
    population = made(epsilon_budget=100.0, probe_epsilon=cost(2) * (1 + 1e-9))
    spend(population, rounds=5)
    spend(population, rounds=1, purpose=PROBE)
    spend(population, "app_version=1.0", rounds=1, purpose=PROBE)
    assert population.spent_on_probes().epsilon == pytest.approx(cost(2))
    assert "which its owner leaves to probes" in population.refusal(EVENT, PROBE, "")
    with pytest.raises(OutOfBudget, match="probes"):
        spend(population, purpose=PROBE)
    spend(population)  # training goes on
    assert population.refusal(EVENT) is None
