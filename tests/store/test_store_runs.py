"""Runs, rounds, ledger, releases, checkpoints: what goes in comes out, and only once it is paid."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from store_builders import (
    DAY,
    a_batch,
    a_ledger_row,
    a_release,
    a_round,
    a_run,
    paid_run,
    some_samples,
)

from fedlens.store import CheckpointRow, Store, StoreError, open_store
from fedlens.store.engine import locate, make_engine


def test_a_run_comes_back_as_it_went_in(store: Store) -> None:
    run = a_run(name="Übung 'one'; DROP TABLE runs", users=2**40)
    store.create_run(run)
    assert store.run("run-1") == run
    assert store.runs() == [run]


def test_runs_are_listed_by_day_and_name_the_last_first(store: Store) -> None:
    for days, name in ((2, "a"), (0, "c"), (1, "a"), (1, "b")):
        run = a_run(run_id=f"run-{days}{name}", name=name, created_at=DAY + timedelta(days))
        store.create_run(run)
    assert [run.run_id for run in store.runs()] == ["run-2a", "run-1b", "run-1a", "run-0c"]


def test_runs_with_samples_are_those_that_have_a_batch(store: Store) -> None:
    assert not store.has_runs()
    paid_run(store)
    store.create_run(a_run(run_id="another"))
    assert store.has_runs()
    assert store.runs(with_samples=True) == []
    for seed in (1, 2):
        store.add_batch(a_batch(3, seed=seed), some_samples(3))
    assert [run.run_id for run in store.runs(with_samples=True)] == ["run-1"]
    assert len(store.runs()) == 2


def test_creating_a_run_again_keeps_the_first(store: Store) -> None:
    store.create_run(a_run())
    store.set_run_status("run-1", "interrupted", "killed")
    store.create_run(a_run(created_at=DAY + timedelta(days=1)))
    there = store.run("run-1")
    assert (there.created_at, there.status, there.stop_reason) == (DAY, "interrupted", "killed")
    with pytest.raises(StoreError, match="config_sha256 = 'c0ffee'"):
        store.create_run(a_run(config_sha256="other"))


def test_status_changes_and_its_reason_goes_when_the_run_goes_on(store: Store) -> None:
    store.create_run(a_run())
    store.set_run_status("run-1", "stopped-by-budget", "DP epsilon would pass 8")
    assert store.run("run-1").stop_reason == "DP epsilon would pass 8"
    store.set_run_status("run-1", "running")
    assert (store.run("run-1").status, store.run("run-1").stop_reason) == ("running", None)
    with pytest.raises(StoreError, match="status = 'done'"):
        store.set_run_status("run-1", "done")  # type: ignore[arg-type]


def test_an_unknown_run_is_named(store: Store) -> None:
    for call in (
        lambda: store.run("nobody"),
        lambda: store.set_run_status("nobody", "finished"),
        lambda: store.record_progress(ledger=[a_ledger_row(run_id="nobody")]),
        lambda: store.record_progress(rounds=[a_round(run_id="nobody")]),
    ):
        with pytest.raises(StoreError, match="nobody"):
            call()


def test_infinite_epsilons_lie_in_the_database_as_null(url: str, store: Store) -> None:
    paid_run(store)
    store.record_progress(rounds=[a_round(dp_epsilon=math.inf)])
    engine = make_engine(locate(url))
    with engine.connect() as connection:
        row = connection.execute(sa.text("SELECT dp_epsilon, bdp_corrected FROM rounds")).one()
    engine.dispose()
    assert tuple(row) == (None, 0.75)


def test_rounds_keep_infinite_epsilons_and_losses_that_are_no_numbers(store: Store) -> None:
    paid_run(store)
    store.record_progress(
        rounds=[
            a_round(
                dp_epsilon=math.inf,
                bdp_as_published=0.1 + 0.2,
                bdp_corrected=math.inf,
                metrics={"nan": math.nan, "up": math.inf, "down": -math.inf, "x": 1e-300},
            )
        ]
    )
    (there,) = store.rounds("run-1")
    assert (there.dp_epsilon, there.bdp_corrected) == (math.inf, math.inf)
    assert there.bdp_as_published == 0.1 + 0.2
    assert math.isnan(there.metrics["nan"])
    rest = {name: value for name, value in there.metrics.items() if name != "nan"}
    assert rest == {"up": math.inf, "down": -math.inf, "x": 1e-300}


def test_recording_a_round_again_replaces_it(store: Store) -> None:
    paid_run(store)
    store.record_progress(ledger=[a_ledger_row(1, 2)])
    store.record_progress(rounds=[a_round(2)])
    store.record_progress(rounds=[a_round(1)])
    store.record_progress(rounds=[a_round(1, metrics={"generator loss": 9.0}, dp_epsilon=math.inf)])
    first, second = store.rounds("run-1")
    assert (first.round, first.metrics, first.dp_epsilon) == (1, {"generator loss": 9.0}, math.inf)
    assert second == a_round(2)


def test_the_ledger_mirror_never_changes(store: Store) -> None:
    store.create_run(a_run())
    rows = [a_ledger_row(index, index + 1) for index in range(3)]
    for row in [rows[2], rows[0], rows[1], rows[0]]:
        store.record_progress(ledger=[row])
    assert store.ledger("run-1") == rows
    with pytest.raises(StoreError, match="entry_hash = 'hash-0'"):
        store.record_progress(ledger=[replace(rows[0], entry_hash="forged")])
    assert store.ledger("run-1") == rows


@pytest.mark.law("2: the ledger line is on disk first")
def test_nothing_of_a_round_is_stored_before_its_ledger_row(store: Store) -> None:
    store.create_run(a_run())
    store.create_run(a_run(run_id="run-2"))
    store.record_progress(ledger=[a_ledger_row(run_id="run-2")])
    release = a_release(status="applied")
    checkpoint = CheckpointRow(run_id="run-1", round=1, sha256="9f3a", path="checkpoint")
    steps = (
        lambda: store.record_progress(releases=[release]),
        lambda: store.record_progress(rounds=[a_round()]),
        lambda: store.record_checkpoint(checkpoint),
    )
    for step in steps:
        with pytest.raises(StoreError, match="record_progress first"):
            step()
    assert (store.releases("run-1"), store.rounds("run-1"), store.checkpoints("run-1")) == (
        [],
        [],
        [],
    )
    store.record_progress(ledger=[a_ledger_row()])
    for step in steps:
        step()
    assert store.releases("run-1") == [release]
    assert store.rounds("run-1") == [a_round()]
    assert store.checkpoints("run-1") == [checkpoint]


def test_the_ledger_row_has_to_be_that_round_s(store: Store) -> None:
    paid_run(store)
    with pytest.raises(StoreError, match="round = 2"):
        store.record_progress(rounds=[a_round(2)])
    with pytest.raises(StoreError, match="of round 1"):
        store.record_progress(releases=[a_release(round=2)])


def test_a_release_s_last_status_holds(store: Store) -> None:
    paid_run(store)
    for status in ("lost", "applied", "lost"):
        store.record_progress(releases=[a_release(status=status)])
    assert [row.status for row in store.releases("run-1")] == ["lost"]


def test_what_was_stored_is_there_after_opening_again(url: str) -> None:
    with open_store(url) as first:
        paid_run(first)
        first.record_progress(rounds=[a_round()])
        with open_store(url) as second:
            assert second.rounds("run-1") == [a_round()]
    with open_store(url) as third:
        assert (third.runs(), third.ledger("run-1")) == ([a_run()], [a_ledger_row()])
