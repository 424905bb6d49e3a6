"""The form that makes an annotation project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from fedlens.dashboard.access.account import require
from fedlens.dashboard.access.session import run_title, store
from fedlens.dashboard.labelling.label_sets import KINDS, default_labels, read_labels
from fedlens.dashboard.widgets.plain_text import plain
from fedlens.dashboard.widgets.tables import Frame, frame, rows_of
from fedlens.store import ProjectRecord, Purpose, QueueOrder, RunRecord, SampleFilter, StoreError

PURPOSE_WORDS: dict[Purpose, str] = {
    "curated": "Curated batches",
    "faithful": "Faithful batches (neither guided nor filtered)",
    "strip": "Strips (a few samples each round)",
}
ORDER_WORDS: dict[QueueOrder, str] = {
    "random": "Shuffled (the same for all annotators)",
    "stored": "As drawn, class by class",
    "uncertainty": "What the annotator network is least sure of first, a share by chance",
    "disagreement": "Shuffled; where answers differ one more annotator is asked, first",
}


def render_project_form(runs: list[RunRecord]) -> int | None:
    """Show the form; give back the id of a project that was just made.

    Args:
        runs: at least one, each with samples.
    """
    by_id = {run.run_id: run for run in runs}
    run_id = st.selectbox(
        "Run to label", list(by_id), format_func=lambda i: run_title(by_id[i]), key="new_run"
    )
    with st.form(f"new-project-{run_id}", border=True):
        name = st.text_input("Name", value=f"Labels of {by_id[run_id].name}", max_chars=120)
        instructions = st.text_area(
            "Instructions for the annotators", placeholder="What counts as what?", height=80
        )
        purpose, order = _scope(run_id)
        overlap, blind, several = _teamwork()
        st.caption(
            "Labels: one key each. *unknown class*: a real thing of no class here. *artefact*: "
            "not a real thing, a fault of the generator."
        )
        table = _labels(run_id)
        if not st.form_submit_button("Create project", type="primary"):
            return None
    more = {"purpose": purpose, "order": order, "overlap": overlap}
    more |= {"blind": blind, "several": several}
    return _create(name, run_id, instructions, table, more)


def _teamwork() -> tuple[int, bool, bool]:
    left, middle, right = st.columns(3)
    overlap = left.number_input(
        "Annotators for each sample", 0, 20, 0, help="0: each annotator labels every sample"
    )
    blind = middle.checkbox("Blind", True, help="Annotators do not see the requested class")
    several = right.checkbox("Several labels a sample")
    return int(overlap), blind, several


def _scope(run_id: str) -> tuple[Purpose, QueueOrder]:
    kinds = [kind for kind in PURPOSE_WORDS if _count(run_id, kind)]
    left, right = st.columns(2)
    purpose = left.selectbox(
        "Samples",
        kinds,
        format_func=lambda kind: f"{PURPOSE_WORDS[kind]} · {_count(run_id, kind):,}",
    )
    order = right.selectbox("Order", list(ORDER_WORDS), format_func=lambda o: ORDER_WORDS[o])
    return purpose, order


def _count(run_id: str, purpose: Purpose) -> int:
    return store().count_samples(SampleFilter(run_id=run_id, purpose=purpose))


def _labels(run_id: str) -> Frame:
    labels = default_labels(store().requested_classes(run_id))
    return st.data_editor(
        frame([{"key": x.key, "name": x.name, "kind": x.kind} for x in labels]),
        num_rows="dynamic",
        hide_index=True,
        height=min(430, 38 + 35 * (len(labels) + 1)),
        column_config={
            "key": st.column_config.TextColumn("Key", max_chars=1, width="small"),
            "name": st.column_config.TextColumn("Label", max_chars=60, width="medium"),
            "kind": st.column_config.SelectboxColumn("Kind", options=list(KINDS), default="class"),
        },
        key=f"labels-{run_id}",
    )


def _create(
    name: str, run_id: str, instructions: str, table: Frame, more: Mapping[str, Any]
) -> int | None:
    if name.strip() in {project.name for project in store().projects()}:
        st.error(f"There is a project {plain(name.strip())} already: choose another name.")
        return None
    try:
        actor = require("manage")
        made = store().create_project(
            ProjectRecord(
                name=name.strip(),
                run_id=run_id,
                labels=read_labels(rows_of(table)),
                instructions=instructions.strip(),
                **more,
            )
        )
        store().log(actor.name, "project made", name.strip())
    except StoreError as error:
        st.error(f"The project was not made. {plain(error)}")
        return None
    return made
