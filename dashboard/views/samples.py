"""Samples: a run's synthetic samples as one grid to filter, rank, enlarge, tag and label."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.account import account
from fedlens.dashboard.access.session import all_runs, pick_run, plain_errors, store
from fedlens.dashboard.samples.filters import choose_batch, label_options
from fedlens.dashboard.samples.gallery import batch_of_sample, describe
from fedlens.dashboard.samples.tag_history import render_tag_history
from fedlens.dashboard.summary.badges import privacy_warning
from fedlens.dashboard.widgets.grid import Marks, grid
from fedlens.dashboard.widgets.markup import tag
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import RunRecord, StoredBatch

PLAIN = {
    "faithful": "Neither guided nor filtered: as the critics taught it. Look for faults here.",
    "curated": (
        "Guided and filtered by the annotator, where the run has one: good to label, but faults "
        "are taken out."
    ),
    "strip": "A few samples of every round, from the same noise.",
}
MIXED = (
    "Batches of all kinds together: curated samples, from which faults are taken out, beside "
    "faithful ones and strips. A close-up names each one's kind."
)
KEYS = (
    "Click or Enter: close-up, arrows go on. Shift-click selects a range; Ctrl-click or Space "
    "toggles one; Ctrl-A all that fit; Esc clears."
)


def _kind(batch: StoredBatch | None) -> None:
    """What the batch is good for, beside what it is called."""
    said = f'{tag("mixed", "found")}<span class="quiet">{MIXED}'
    if batch is not None:
        kind = "good" if batch.purpose == "faithful" else "on"
        said = f'{tag(batch.purpose, kind)}<span class="quiet">{PLAIN[batch.purpose]}'
    st.html(f"{said} {KEYS}</span>")


def _marks(run: RunRecord) -> Marks:
    """What the visitor's role may give. Who labels for a blind project must not see classes."""
    visitor = account()
    projects = [one for one in store().projects() if one.run_id == run.run_id and not one.blind]
    labels = [
        {"id": one.label_id, "project": project.project_id, "name": f"{project.name}: {one.name}"}
        for project in projects
        for one in store().labels(project.project_id)
    ]
    findings = store().findings(run_id=run.run_id) if visitor.may("manage") else []
    return Marks(
        tags=visitor.may("review"),
        labels=labels if visitor.may("annotate") else [],
        findings=[
            {"id": one.finding_id, "name": f"{one.finding_id}: {one.hypothesis}"}
            for one in findings
        ],
    )


def render() -> None:
    """Show the page."""
    title, left, right = st.columns([1.2, 2, 2], vertical_alignment="bottom")
    title.title("Samples")
    with plain_errors():
        runs = all_runs()
        if not runs:
            st.info("**No samples yet.** Samples come from runs; the page *Runs* says how.")
            return
        with left:
            run = pick_run(runs)
        batch_of_sample(run)
        with right:
            batch = choose_batch(run)
        privacy_warning(run)
        names = label_options(run.run_id)
        data = describe(run, batch, label_names=names, marks=_marks(run))
        if data is None:
            st.info(
                "No samples yet. A run stores a strip of samples every few rounds and a larger "
                "batch to work on at its end."
            )
            return
        _kind(batch)
        grid(data, key=f"grid-{run.run_id}")
        render_tag_history(run)


PAGE = DashboardPage("Samples", ":material/grid_view:", "samples", 30, render)
