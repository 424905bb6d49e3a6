"""A run at a glance: a few samples of every class as one small picture."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.session import store
from fedlens.dashboard.runs.batch_kinds import identity, ranked
from fedlens.dashboard.runs.integrity import intact
from fedlens.dashboard.samples import images
from fedlens.dashboard.samples.filters import classes_of
from fedlens.dashboard.samples.scaling import size_of
from fedlens.store import RunRecord, SampleFilter, StoredBatch, StoredSample

COLUMNS, ROWS = 10, 4
GAP = 1
WIDEST = 340
"""Pixels of the picture: of larger samples it holds fewer classes, and all of their pixels."""


def newest_batch(run_id: str) -> StoredBatch | None:
    """The batch that is most like users' data, of the latest round that has one."""
    batches = ranked(store().batches(run_id))
    return batches[0] if batches else None


def by_class(batch: StoredBatch, each: int, classes: int = COLUMNS) -> list[list[StoredSample]]:
    """Up to ``each`` samples of each of the first classes of a batch, by class."""
    shown = classes_of(batch.run_id)[:classes]
    return [
        intact(
            store().samples(SampleFilter(batch_id=batch.batch_id, requested_class=one), limit=each)
        )
        for one in shown
    ]


@st.cache_data(max_entries=256, show_spinner=False)
def _thumbnail(place: str, made_from: tuple[object, ...], _batch: StoredBatch) -> str:
    """The picture; of another store in the place of this one, batches have the same numbers."""
    columns = [samples for samples in by_class(_batch, ROWS) if samples]
    if not columns:
        return ""
    width, _ = size_of(columns[0][0].png)
    columns = columns[: max(1, WIDEST // (width + GAP))]
    rows = min(len(samples) for samples in columns)
    pngs = [samples[row].png for row in range(rows) for samples in columns]
    return images.base64_text(images.to_png(images.sheet(pngs, len(columns), GAP)))


def thumbnail(run: RunRecord) -> str:
    """Base64 of a PNG, a column a class; empty where the run has no samples yet."""
    batch = newest_batch(run.run_id)
    return "" if batch is None else _thumbnail(store().place, identity(batch), batch)
