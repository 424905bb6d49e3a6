"""Records to test with, each with one thing changed at will."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from fedlens.store import (
    BatchRecord,
    LabelRecord,
    LedgerRow,
    ProjectRecord,
    ReleaseRow,
    RoundRecord,
    RunRecord,
    SampleRecord,
    Store,
)

MOMENT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
DAY = date(2026, 3, 1)
SPENT = {
    "dp_epsilon": 7.5,
    "delta_dp": 1e-5,
    "bdp_as_published": 0.5,
    "bdp_corrected": 0.75,
    "bdp_sound": 0.95,
    "delta_bdp": 1e-10,
}


def a_run(**changes: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "name": "first",
        "config": {"rounds": {"count": 3}, "names": ["a", "b"]},
        "config_sha256": "c0ffee",
        "data_name": "embedded",
        "unit": "user",
        "users": 1000,
        "nodes": 2,
        "rounds_planned": 3,
        "private": True,
        "guarantee": "(7.5, 1e-5)-DP for each user",
        "created_at": DAY,
    }
    return RunRecord(**fields | changes)


def a_ledger_row(index: int = 0, round_: int = 1, **changes: Any) -> LedgerRow:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "index": index,
        "round": round_,
        "event": {"kind": "subsampled-gaussian", "noise_multiplier": 2.0},
        "purpose": "critic update",
        "entry_hash": f"hash-{index}",
        "created_at": DAY,
    }
    return LedgerRow(**fields | changes)


def a_release(**changes: Any) -> ReleaseRow:
    fields: dict[str, Any] = {"run_id": "run-1", "ledger_index": 0, "round": 1, "status": "lost"}
    return ReleaseRow(**fields | changes)


def a_round(round_: int = 1, **changes: Any) -> RoundRecord:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "round": round_,
        "metrics": {"generator loss": 0.25},
        "dp_method": "rdp",
        **SPENT,
    }
    return RoundRecord(**fields | changes)


def a_batch(count: int, **changes: Any) -> BatchRecord:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "round": 1,
        "ledger_index": 0,
        "purpose": "curated",
        "checkpoint_sha256": "9f3a",
        "seed": 17,
        "count": count,
        "private": True,
        "provenance": "SYNTHETIC, run first, round 1",
        **SPENT,
    }
    return BatchRecord(**fields | changes)


def some_samples(count: int, seed: int = 0, channels: int = 1) -> list[SampleRecord]:
    random = np.random.default_rng(seed)
    return [
        SampleRecord.from_pixels(
            position=place,
            requested_class=place % 10,
            pixels=random.integers(0, 256, (channels, 28, 28), dtype=np.uint8),
        )
        for place in range(count)
    ]


LABELS = (
    LabelRecord(key="0", name="zero"),
    LabelRecord(key="1", name="one"),
    LabelRecord(key="q", name="unknown class", kind="unknown"),
)


def a_project(**changes: Any) -> ProjectRecord:
    fields: dict[str, Any] = {"name": "digits", "run_id": "run-1", "labels": LABELS}
    return ProjectRecord(**fields | changes)


def paid_run(store: Store) -> None:
    """A run whose first round is in the ledger."""
    store.create_run(a_run())
    store.record_progress(ledger=[a_ledger_row()])
