"""The form that makes an annotation project."""

from __future__ import annotations

import streamlit as st

from dashboard.frames import Frame, frame, rows_of
from dashboard.label_sets import KINDS, default_labels, read_labels
from dashboard.session import run_title, store
from server.store import ProjectRecord, Purpose, QueueOrder, RunRecord, SampleFilter, StoreError

PURPOSE_WORDS: dict[Purpose, str] = {
    "release": "Release batches",
    "strip": "Strips (a few samples each round)",
}
ORDER_WORDS: dict[QueueOrder, str] = {
    "random": "Shuffled (the same for all annotators)",
    "stored": "As drawn, class by class",
}


def show(runs: list[RunRecord]) -> int | None:
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
        st.caption(
            "Labels: one key each. *unknown class*: a real thing of no class here. *artefact*: "
            "not a real thing, a fault of the generator."
        )
        table = _labels(run_id)
        if not st.form_submit_button("Create project", type="primary"):
            return None
    return _create(name, run_id, instructions, purpose, order, table)


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
    name: str, run_id: str, instructions: str, purpose: Purpose, order: QueueOrder, table: Frame
) -> int | None:
    if name.strip() in {project.name for project in store().projects()}:
        st.error(f"There is a project {name.strip()!r} already: choose another name.")
        return None
    try:
        return store().create_project(
            ProjectRecord(
                name=name.strip(),
                run_id=run_id,
                labels=read_labels(rows_of(table)),
                instructions=instructions.strip(),
                purpose=purpose,
                order=order,
            )
        )
    except StoreError as error:
        st.error(f"The project was not made. {error}")
        return None
