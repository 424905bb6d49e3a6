"""What audits found: added, kept in order, and nothing of membership."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from store_builders import DAY, MOMENT, a_run, paid_run

from fedlens.store import AuditRecord, Store, StoreError


def an_audit(**changes: Any) -> AuditRecord:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "kind": "one-run",
        "at": DAY,
        "claimed_epsilon": 2.2,
        "delta": 1e-6,
        "lower_bound": 0.4,
        "cap": 3.3,
        "verdict": "nothing-found",
        "words": "131 of 200 guesses were right.",
    }
    return AuditRecord(**fields | changes)


def test_audits_come_back_as_they_went_in_and_in_order(store: Store) -> None:
    paid_run(store)
    store.create_run(a_run(run_id="run-2", name="second"))
    assert store.audits("run-1") == []
    found = [
        an_audit(),
        an_audit(),  # the same audit again is another row
        an_audit(kind="noise", lower_bound=None, estimate=2.1, cap=None, verdict="alarm"),
        an_audit(at=DAY - timedelta(days=1), claimed_epsilon=math.inf),
    ]
    for record in found:
        store.record_audit(record)
    store.record_audit(an_audit(run_id="run-2"))
    assert store.audits("run-1") == found
    assert store.audits("run-2") == [an_audit(run_id="run-2")]


def test_an_unknown_run_has_no_audits(store: Store) -> None:
    with pytest.raises(StoreError, match="no such run"):
        store.record_audit(an_audit(run_id="nobody"))
    with pytest.raises(StoreError, match="no such run"):
        store.audits("nobody")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"kind": "guessing"}, "kind"),
        ({"verdict": "passed"}, "verdict"),
        ({"claimed_epsilon": math.nan}, "claimed_epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"estimate": math.inf}, "estimate"),
        ({"cap": -1.0}, "cap"),
        ({"words": ""}, "words"),
        ({"at": MOMENT}, "at"),
    ],
)
def test_what_is_no_audit_is_refused(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(StoreError, match=f"^{name} = "):
        an_audit(**changes)


@pytest.mark.law("3: the store has no place for a real record")
@pytest.mark.parametrize("verdict", ["alarm", "nothing-found", "cannot-detect"])
def test_of_membership_inference_nothing_is_stored(verdict: str) -> None:
    """Whether it raised an alarm is one bit of users' records, without noise."""
    with pytest.raises(StoreError, match=r"kind = 'membership'.*audit\.json"):
        an_audit(kind="membership", lower_bound=None, cap=None, verdict=verdict)
