"""The card that offers the probe which would confirm a finding."""

from __future__ import annotations

import pytest

from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.accountant.ledger.terms import population_folder
from fedlens.dashboard.faults.answer import DiagnosedFault
from fedlens.dashboard.faults.cards import offer_card, offer_for

CONFIG = {"data.users": 1000, "privacy.delta": 1e-6, "privacy.population": "", "data.slice": ""}
EVERY = tuple(range(10))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))


def finding(probe):
    return DiagnosedFault("fault", "what it is", None, 0.3, 0.28, 0.32, 1e-6, EVERY, probe=probe)


def test_a_card_says_what_is_asked_what_it_costs_and_how_near_it_is():
    shown = offer_card(offer_for(finding("better_after:rotate270"), CONFIG), "runs/<demo>")
    for said in ("better_after:rotate270", "DP ε = 0.3", "Bayesian DP", "±2.6 points"):
        assert said in shown
    assert "fedlens probe &#x27;runs/&lt;demo&gt;&#x27; --probe" in shown and "<demo>" not in shown


def test_a_population_that_cannot_pay_shows_on_the_card():
    terms = PopulationTerms("clinic", "user", 1e-6, 1.0, probe_epsilon=0.1)
    Population.create(population_folder("clinic"), terms)
    shown = offer_card(
        offer_for(finding("repeats"), {**CONFIG, "privacy.population": "clinic"}), "r"
    )
    assert (
        "Refused" in shown
        and "owner leaves to probes" in shown
        and "budget, DP ε ≤ 1 and so" in shown
    )


def test_without_a_probe_there_is_no_card_and_a_missing_population_is_no_error():
    assert offer_for(finding(""), CONFIG) is None
    assert offer_for(finding("repeats"), {**CONFIG, "privacy.population": "gone"})
