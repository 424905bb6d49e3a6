"""Requests to spend: each decided once, by somebody else, and carried out once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedlens.store import PERMISSIONS, SpendingRequest, SpendingRule, Store, StoreError, open_store

ASKED = SpendingRequest(
    people="ward", run_id="run-1", probe="repeats", asked_epsilon=0.3, epsilon=0.29, delta=1e-5
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store.db", create=True)


def test_a_request_is_approved_by_another_and_taken_once(store: Store) -> None:
    number = store.request_spending(ASKED, author="eve")
    assert store.request_spending(ASKED, author="eve") == number  # the same question, still open
    with pytest.raises(StoreError, match="nobody approves"):
        store.decide_request(number, approved=True, author="eve")
    with pytest.raises(StoreError, match="not approved"):
        store.take_request(number)
    assert store.decide_request(number, approved=True, author="otto").decided_by == "otto"
    with pytest.raises(StoreError, match="not waiting"):
        store.decide_request(number, approved=False, author="otto", note="too late")

    def take(_: int) -> bool:
        try:
            return store.take_request(number).status == "being asked"
        except StoreError:
            return False

    with ThreadPoolExecutor(4) as people:
        assert sum(people.map(take, range(4))) == 1
    store.close_request(number, answered=True)
    (done,) = store.requests(people="ward")
    assert (done.status, done.open) == ("answered", False)
    assert store.request_spending(ASKED, author="eve") != number
    log = [(one.actor, one.action) for one in store.log_entries()]
    assert {("eve", "spending requested"), ("otto", "spending approved")} <= set(log)


def test_a_decline_says_why(store: Store) -> None:
    number = store.request_spending(ASKED, author="eve")
    with pytest.raises(StoreError, match="say why"):
        store.decide_request(number, approved=False, author="otto", note=" ")
    store.decide_request(number, approved=False, author="otto", note="ask a smaller one")
    assert store.requests(run_id="run-1", status="declined")[0].note == "ask a smaller one"


def test_the_last_rule_about_people_holds(store: Store) -> None:
    assert not store.spending_rule("ward").needs_approval(9.0, 1.0)
    store.set_spending_rule("ward", 0.1, 0.5, author="otto")
    store.set_spending_rule("ward", 0.2, 0.9, author="otto")
    rule = store.spending_rule("ward")
    assert (rule.approve_above, rule.warn_at, rule.author) == (0.2, 0.9, "otto")
    asked = {(0.2, None): False, (0.21, None): True, (0.1, 0.95): True, (0.1, 0.9): False}
    assert all(rule.needs_approval(*given) is wanted for given, wanted in asked.items())
    for wrong in ({"approve_above": -1.0}, {"warn_at": 0.0}, {"approve_above": float("nan")}):
        with pytest.raises(StoreError):
            SpendingRule(**wrong)


def test_whoever_may_spend_may_not_approve() -> None:
    assert all(not {"manage", "approve"} <= allowed for allowed in PERMISSIONS.values())
    assert "approve" in PERMISSIONS["officer"]
