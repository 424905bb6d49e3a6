"""What is said about a run's samples as a whole."""

from __future__ import annotations

import pytest
from store_builders import a_batch, a_ledger_row, a_run, paid_run, some_samples

from fedlens.store import Store, StoreError


def test_requested_classes_are_those_of_the_runs_samples_only(store: Store) -> None:
    paid_run(store)
    store.create_run(a_run(run_id="run-2", name="second"))
    store.record_progress(ledger=[a_ledger_row(run_id="run-2")])
    assert store.requested_classes("run-1") == []
    store.add_batch(a_batch(12), reversed(some_samples(12)))
    store.add_batch(a_batch(3, run_id="run-2", seed=1), some_samples(3, seed=1))
    assert store.requested_classes("run-1") == list(range(10))
    assert store.requested_classes("run-2") == [0, 1, 2]


def test_requested_classes_of_an_unknown_run_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="no such run"):
        store.requested_classes("nobody")
