"""Pickers of a run's batches, and what its samples can be told apart by."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.session import choice, store
from fedlens.dashboard.samples.batches import KINDS, rank_batches
from fedlens.store import RunRecord, StoredBatch

ALL = "all"


def batch_title(batch: StoredBatch) -> str:
    """A batch in words."""
    return f"Round {batch.round}: {batch.count:,} {KINDS[batch.purpose][1]}"


def label_options(run_id: str) -> dict[int, str]:
    """The labels of all projects over the run, by id."""
    return {
        label.label_id: f"{project.name}: {label.name}"
        for project in store().projects()
        if project.run_id == run_id
        for label in store().labels(project.project_id)
    }


def classes_of(run_id: str) -> list[int]:
    """The classes of a run's samples; looked for once for each number of batches."""
    return _classes(store().place, run_id, len(store().batches(run_id)))


@st.cache_data(max_entries=256, show_spinner=False)
def _classes(place: str, run_id: str, batches: int) -> list[int]:
    return store().requested_classes(run_id)


def choose_batch(
    run: RunRecord,
    parameter: str = "batch",
    *,
    with_all: bool = True,
    beside: StoredBatch | None = None,
) -> StoredBatch | None:
    """A picker of a run's batches; None for all of them, or where there is none.

    Args:
        run: whose batches.
        parameter: of the address.
        with_all: whether all of them together may be chosen.
        beside: a batch that is not the one to begin with, where there is another.
    """
    ranked = rank_batches(store().batches(run.run_id))
    ranked.sort(key=lambda one: one == beside)
    by_id = {str(one.batch_id): one for one in ranked}
    options = [*by_id, *([ALL] if with_all or not by_id else [])]
    chosen = choice(
        "Batch",
        options,
        lambda one: "All batches" if one == ALL else batch_title(by_id[one]),
        parameter,
    )
    return by_id.get(chosen)
