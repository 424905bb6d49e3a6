"""The filters above the sample grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from dashboard.session import store
from server.store import Purpose, RunRecord, SampleFilter

PURPOSES: dict[Purpose, str] = {
    "strip": "Strip (a few each round)",
    "release": "Release (to inspect and label)",
}

OptionT = TypeVar("OptionT")


def label_options(run_id: str) -> dict[int, str]:
    """The labels of all projects over the run, by id."""
    return {
        label.label_id: f"{project.name}: {label.name}"
        for project in store().projects()
        if project.run_id == run_id
        for label in store().labels(project.project_id)
    }


def choose(run: RunRecord) -> SampleFilter:
    """Show the filters; give back what they leave."""
    batches = store().batches(run.run_id)
    labels = label_options(run.run_id)
    purpose, round_, requested, label = st.columns(4)
    with purpose:
        kinds = list(dict.fromkeys(batch.purpose for batch in batches))
        chosen_purpose = _one("Purpose", kinds, lambda kind: PURPOSES[kind], run)
    with round_:
        rounds = sorted({batch.round for batch in batches})
        chosen_round = _one("Round", rounds, str, run)
    with requested:
        classes = store().requested_classes(run.run_id)
        chosen_class = _one("Requested class", classes, str, run)
    with label:
        chosen_label = _one("Label given", list(labels), lambda i: labels[i], run)
    return SampleFilter(
        run_id=run.run_id,
        round=chosen_round,
        purpose=chosen_purpose,
        requested_class=chosen_class,
        label_id=chosen_label,
    )


def _one(
    label: str, options: Sequence[OptionT], words: Callable[[OptionT], str], run: RunRecord
) -> OptionT | None:
    """A select box over the options and "All"; its state belongs to one run."""
    return st.selectbox(
        label,
        [None, *options],
        format_func=lambda option: "All" if option is None else words(option),
        key=f"filter-{label}-{run.run_id}",
        disabled=not options,
    )
