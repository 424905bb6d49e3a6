"""A privacy officer's rule is asked by the grant itself: no page and no command goes around it."""

import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.officer import LARGEST, RULES, OfficerRules
from fedlens.accountant.ledger.population import (
    OutOfBudget,
    Population,
    PopulationError,
    PopulationTerms,
)
from fedlens.accountant.ledger.spending import PROBE
from fedlens.accountant.probing import approved_as, price_of, probe_event, probe_noise

DELTA = 1e-5
TERMS = PopulationTerms("ward", "user", DELTA, 8.0, users=1000)
ROUND = SubsampledGaussian("user", "none", "add-remove", 1.0, 2.0, 1.0)


def event_of(epsilon):
    return probe_event(probe_noise(epsilon, DELTA))


@pytest.fixture
def ward(tmp_path):
    return Population.create(tmp_path / "ward", TERMS)


def ask(population, epsilon, number, question="probe intensity"):
    event, run = event_of(epsilon), f"p{number}"
    return population.charge(event, run=run, number=1, purpose=PROBE, question=question)


def test_a_probe_above_the_limit_waits_and_one_approval_lets_one_through(ward):
    ask(ward, 0.3, 1)  # before there was a rule; it uses up no approval
    ward.set_officer_rule(0.2, 1.0, by="otto")
    with pytest.raises(OutOfBudget, match=r"more than DP ε = 0\.2 .*page Privacy"):
        ask(ward, 0.3, 2)
    ask(ward, 0.19, 3)
    price = price_of(0.3, DELTA, 1000, population=ward, question="probe intensity")
    assert price.waits and price.refusal is None
    elsewhere = Population.open(ward.folder)  # another process approves
    elsewhere.approve(event_of(0.3), question="probe intensity", by="otto")
    assert ward.waits(event_of(0.3), PROBE, "site=north", "probe intensity")
    assert price_of(0.3, DELTA, 1000, population=ward, question="probe intensity").waits is None
    assert price_of(0.3, DELTA, 1000, population=ward, question="probe label_share:3").waits
    with pytest.raises(OutOfBudget):
        ask(ward, 0.5, 4)  # it was another price that was approved
    with pytest.raises(OutOfBudget):
        ask(ward, 0.3, 4, "label_share:3")  # and another question
    ask(ward, 0.3, 5)
    with pytest.raises(OutOfBudget):
        ask(ward, 0.3, 6)
    assert len(ward.ledger) == 3
    ward.set_officer_rule(None, 1.0, by="otto")
    ask(ward, 0.3, 7)


def test_what_passes_the_share_of_the_budget_waits_too_and_training_does_not(ward):
    ward.set_officer_rule(5.0, 0.01, by="otto")
    ward.charge(ROUND, run="r", number=1)
    with pytest.raises(OutOfBudget, match=r"pass 1% of the budget"):
        ask(ward, 0.05, 1)
    ward.charge(ROUND, run="r", number=2)


@pytest.mark.parametrize(
    "harm",
    [b"{", b'{"kind": "rule"}\n',
     b'{"kind": "more", "noise_multiplier": 1, "question": "", "users": ""}\n',
     b'{"kind": "approval", "event": {}, "question": "", "users": ""}\n',
     b'{"kind": "rule", "approve_above": NaN, "warn_at": 1}\n',
     b"[]\n", b" " * (LARGEST + 1)],
)  # fmt: skip
def test_rules_that_cannot_be_read_let_no_probe_through(ward, harm):
    (ward.folder / RULES).write_bytes(harm)
    with pytest.raises(PopulationError, match="no probe is granted"):
        ask(ward, 0.1, 1)
    assert len(ward.ledger) == 0
    ward.charge(ROUND, run="r", number=1)


def test_an_approval_of_a_price_alone_is_none_and_harms_no_rule(ward):
    """As they once were written."""
    ward.set_officer_rule(0.2, 1.0, by="otto")
    with (ward.folder / RULES).open("ab") as file:
        file.write(b'{"kind": "approval", "noise_multiplier": 1.0, "granted": 0, "by": "o"}\n')
    ask(ward, 0.1, 1)
    with pytest.raises(OutOfBudget, match="has not approved"):
        ask(ward, 0.3, 2)


def test_what_was_not_let_ask_waits_for_an_officer_once_and_for_all_its_rounds(ward):
    """Of its own noise, of the network of one run; a rule lifted meanwhile has nothing wait."""
    ward.set_officer_rule(0.1, 1.0, by="otto")
    event, question = probe_event(3.0), approved_as("recognised", "run-1")

    def put(question=question):
        return ward.ask_officer(event, PROBE, "", question, run="run-1", times=2)

    assert put() and put()  # however often it is asked
    elsewhere = Population.open(ward.folder)
    (one,) = elsewhere.waiting()
    assert (one.event, one.question, one.run, one.times) == (event, question, "run-1", 2)
    assert one.epsilon(DELTA) > event_alone(event)
    elsewhere.decide(one, approved=False, by="otto", why="why now?")
    assert elsewhere.waiting() == [] and ward.waits(event, PROBE, "", question)
    put()
    elsewhere.decide(one, approved=True, by="otto")
    assert ward.waiting() == [] and put() is None
    of_another = approved_as("recognised", "run-2")
    assert put(of_another) and ward.waiting()[0].question == of_another
    for number in (1, 2):
        ward.charge(event, run="run-1", number=number, purpose=PROBE, question=question)
    with pytest.raises(OutOfBudget):
        ward.charge(event, run="run-1", number=3, purpose=PROBE, question=question)
    said = [(one.approved, one.by, one.why) for one in OfficerRules.read(ward.folder).decided]
    assert said == [(True, "otto", ""), (False, "otto", "why now?")]
    ward.set_officer_rule(None, 1.0, by="otto")
    assert ward.waiting() == []


def test_no_more_wait_than_an_officer_can_look_through(ward, monkeypatch):
    monkeypatch.setattr("fedlens.accountant.ledger.officer.MOST_WAITING", 3)
    ward.set_officer_rule(0.01, 1.0, by="otto")
    reasons = [ward.ask_officer(probe_event(3.0 + step), PROBE) for step in range(5)]
    assert [("3 wait already" in reason) for reason in reasons] == [False] * 3 + [True] * 2
    waiting = ward.waiting()
    assert len(waiting) == 3
    size = (ward.folder / RULES).stat().st_size
    assert "3 wait already" in ward.ask_officer(probe_event(9.0), PROBE)
    assert "it waits" in ward.ask_officer(waiting[0].event, PROBE)
    assert (ward.folder / RULES).stat().st_size == size
    ward.decide(waiting[0], approved=False, by="otto")
    assert "it waits" in ward.ask_officer(probe_event(9.0), PROBE)
    ward.set_officer_rule(event_alone(probe_event(2.0)), 1.0, by="otto")
    assert ward.waiting() == []  # none of those needs an officer any more, so none is in the way
    assert "it waits" in ward.ask_officer(probe_event(1.0), PROBE)


def event_alone(event):
    account = DifferentialAccountant()
    account.compose(event)
    return account.epsilon(DELTA).epsilon
