"""Ledgers of the same people that no population counts: what they come to together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Event, SubsampledGaussian
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.prior import HEADER, PriorReleases
from fedlens.accountant.ledger.together import LedgersTogether, plan_record
from fedlens.foundation.errors import WrongUse

DELTA = 1e-5
ROUND = SubsampledGaussian("user", "none", "add-remove", 1.0, 8.0, 1.0)
PROBE = SubsampledGaussian("user", "none", "add-remove", 1.0, 12.0, 1.0, released="probe")


def made(
    folder: Path, run: str, events: Sequence[Event], plan: int | None = None, **header: Any
) -> Ledger:
    """A run's ledger, with a plan of so many rounds."""
    record = {"run_id": run, "unit": "user", **header}
    if plan is not None:
        record["plan"] = plan_record([(ROUND, plan)])
    ledger = Ledger.create(folder / f"{run}.jsonl", record)
    for number, event in enumerate(events, start=1):
        ledger.append(event, round=number, purpose="training round", evidence_digest=None)
    return ledger


def epsilon(*booked: tuple[Event, int]) -> float:
    account = DifferentialAccountant()
    for event, times in booked:
        account.compose(event, times)
    return account.epsilon(DELTA).epsilon


def test_a_run_its_probes_and_the_rest_of_its_plan_add_up(tmp_path: Path) -> None:
    early = made(tmp_path, "early", [ROUND] * 2, plan=5)
    probe = made(tmp_path, "probe", [PROBE])
    together = LedgersTogether([early, probe])
    assert together.spent(DELTA).epsilon == epsilon((ROUND, 5), (PROBE, 1))
    shares = together.shares(DELTA)
    assert [(one.run, one.grants) for one in shares] == [("early", 2), ("probe", 1)]
    after = together.spent_after(PROBE, DELTA).epsilon
    assert after == epsilon((ROUND, 5), (PROBE, 2))
    left = together.runs_left([PROBE], 2.0, DELTA)
    assert epsilon((ROUND, 5), (PROBE, 1 + left)) <= 2.0 < epsilon((ROUND, 5), (PROBE, 2 + left))
    assert together.runs_left([PROBE], 0.1, DELTA) == 0


def test_what_has_not_begun_has_spent_nothing(tmp_path: Path) -> None:
    assert LedgersTogether([made(tmp_path, "new", [], plan=5)]).spent(DELTA).epsilon == 0


def test_what_a_run_builds_on_is_counted_once_with_or_without_its_ledger(tmp_path: Path) -> None:
    first = made(tmp_path, "first", [ROUND] * 3, plan=4)
    prior = PriorReleases.of(first, other_people=False, plan=[(ROUND, 4)])
    second = made(tmp_path, "second", [ROUND] * 2, plan=2, **{HEADER: prior.to_json()})
    for ledgers in ([second], [first, second], [second, first]):
        assert LedgersTogether(ledgers).spent(DELTA).epsilon == epsilon((ROUND, 6))
    others = PriorReleases.of(first, other_people=True)
    apart = made(tmp_path, "apart", [ROUND], **{HEADER: others.to_json()})
    assert LedgersTogether([apart]).spent(DELTA).epsilon == epsilon((ROUND, 1))


def test_users_and_records_never_add_up(tmp_path: Path) -> None:
    record = SubsampledGaussian("record", "poisson", "add-remove", 0.1, 8.0, 1.0)
    ledgers = [made(tmp_path, "users", [ROUND]), made(tmp_path, "records", [record])]
    with pytest.raises(WrongUse, match="cannot be added up"):
        LedgersTogether(ledgers)
    with pytest.raises(WrongUse):
        LedgersTogether([])
