"""A run at a glance: a few samples of every class as one small picture."""

from __future__ import annotations

import streamlit as st

from dashboard import images
from dashboard.batch_kinds import ranked
from dashboard.sample_filters import classes_of
from dashboard.session import store
from server.store import RunRecord, SampleFilter, StoredBatch, StoredSample

COLUMNS, ROWS = 10, 4
GAP = 1


def newest_batch(run_id: str) -> StoredBatch | None:
    """The batch that is most like users' data, of the latest round that has one."""
    batches = ranked(store().batches(run_id))
    return batches[0] if batches else None


def by_class(batch: StoredBatch, each: int, classes: int = COLUMNS) -> list[list[StoredSample]]:
    """Up to ``each`` samples of each of the first classes of a batch, by class."""
    shown = classes_of(batch.run_id)[:classes]
    return [
        store().samples(SampleFilter(batch_id=batch.batch_id, requested_class=one), limit=each)
        for one in shown
    ]


@st.cache_data(max_entries=256, show_spinner=False)
def _thumbnail(url: str, batch_id: int, count: int, _batch: StoredBatch) -> str:
    columns = [samples for samples in by_class(_batch, ROWS) if samples]
    if not columns:
        return ""
    rows = min(len(samples) for samples in columns)
    pngs = [samples[row].png for row in range(rows) for samples in columns]
    return images.base64_text(images.to_png(images.sheet(pngs, len(columns), GAP)))


def thumbnail(run: RunRecord) -> str:
    """Base64 of a PNG, a column a class; empty where the run has no samples yet."""
    batch = newest_batch(run.run_id)
    return "" if batch is None else _thumbnail(store().place, batch.batch_id, batch.count, batch)
