"""Synthetic samples that faults are shown on, for the dashboard and the command alike."""

from __future__ import annotations

from collections.abc import Sequence

from fedlens.dashboard.samples.images import base64_text
from fedlens.dashboard.summary.batch_kinds import rank_batches
from fedlens.diagnosis.stored_answers import SAMPLES_EACH
from fedlens.store import SampleFilter, Store

MOST_CLASSES = 40


def load_examples(store: Store, run_id: str, classes: Sequence[int]) -> list[dict[str, str | int]]:
    """A few samples of the batch that is most like the users' data, the classes in turn.

    Each is ``png`` in base64 and its ``label``; none where the run has no samples yet.
    """
    batches = rank_batches(store.batches(run_id))
    if not batches:
        return []
    found = [
        store.samples(
            SampleFilter(batch_id=batches[0].batch_id, requested_class=one), limit=SAMPLES_EACH
        )
        for one in classes[:MOST_CLASSES]
    ]
    return [
        {"png": base64_text(one[turn].png), "label": one[turn].requested_class}
        for turn in range(SAMPLES_EACH)
        for one in found
        if turn < len(one)
    ]
