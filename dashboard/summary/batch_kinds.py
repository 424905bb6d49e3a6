"""The kinds of batches, and which is opened first; needs no browser."""

from __future__ import annotations

from fedlens.store import StoredBatch

KINDS: dict[str, tuple[int, str]] = {
    "faithful": (0, "faithful, to look for faults in"),
    "curated": (1, "curated, to label and teach with"),
    "strip": (2, "a few each round"),
}
"""For each kind of batch its rank and its words: the samples most like users' data stand first."""


def rank_batches(batches: list[StoredBatch]) -> list[StoredBatch]:
    """Batches with the one to open first: by kind, then the newest."""
    return sorted(batches, key=lambda one: (KINDS[one.purpose][0], -one.round, -one.batch_id))


def batch_identity(batch: StoredBatch) -> tuple[object, ...]:
    """What tells a batch from each other one, also of a store that took this one's place."""
    key = (batch.run_id, batch.round, batch.purpose, batch.seed)
    return (batch.batch_id, *key, batch.count, batch.checkpoint_sha256)
