"""What a grid of samples is told of its batch before it asks for the samples themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from fedlens.dashboard.access.session import store
from fedlens.dashboard.samples.batches import batch_identity
from fedlens.dashboard.samples.gallery_api import PART
from fedlens.dashboard.widgets.grid import Marks, grid_data
from fedlens.dashboard.widgets.markup import size_of
from fedlens.store import RunRecord, SampleFilter, StoredBatch, StoreError

SAMPLE_PARAMETER = "sample"
_COLOUR_TYPE = 25
"""Place of a PNG's kind: 0 for grey, 2 for colour."""


def describe(
    run: RunRecord,
    batch: StoredBatch | None,
    *,
    label_names: Mapping[int, str] | None = None,
    marks: Marks | None = None,
    classes: Sequence[int] | None = None,
) -> dict[str, Any] | None:
    """The data of a grid, as `grid_data` takes it; None where there are no samples."""
    found = [batch] if batch is not None else store().batches(run.run_id)
    wanted = SampleFilter(run_id=run.run_id, batch_id=None if batch is None else batch.batch_id)
    first = store().samples(wanted, limit=1)
    if not first:
        return None
    width, height = size_of(first[0].png)
    version = (store().place, *(batch_identity(one) for one in found))
    return grid_data(
        run.run_id,
        batch,
        count=sum(one.count for one in found),
        shape=(height, width, 1 if first[0].png[_COLOUR_TYPE] == 0 else 3),
        version=hashlib.sha256(repr(version).encode()).hexdigest()[:12],
        label_names=label_names,
        marks=marks,
        classes=classes,
        class_names=run.class_names,
    )


def batch_of_sample(run: RunRecord) -> None:
    """Have the address name the batch of the sample that it names, where it names no batch."""
    asked, there = st.query_params.get(SAMPLE_PARAMETER, ""), st.query_params.get("batch")
    if there is not None or not (asked.isascii() and asked.isdigit() and len(asked) < 10):
        return
    try:
        sample = store().sample(int(asked))
    except StoreError:
        return
    if sample.run_id == run.run_id:
        st.query_params["batch"] = str(sample.batch_id)
        if sample.position >= PART:
            st.query_params["part"] = str(sample.position // PART)
