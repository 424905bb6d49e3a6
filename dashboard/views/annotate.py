"""Annotate: choose or make a project, then label its samples, one key each."""

from __future__ import annotations

import hashlib
from functools import partial

import streamlit as st

from dashboard import project_form
from dashboard.answers import Receipts, take
from dashboard.badges import privacy_warning
from dashboard.components.labeller import QUEUE_LENGTH, desk_data, labeller
from dashboard.pages import DashboardPage
from dashboard.session import annotator, pick, plain_errors, store
from server.store import EXPORTERS, Exporter, Store, StoredProject

PROJECT_PARAMETER = "project"
GUIDE = (
    "Press a label's key, or click it. The next sample follows at once; your answers are saved as "
    "you go. **Space** skips, **U** or **Backspace** takes the last answer back."
)


def scope_of(place: str, project: StoredProject, annotator_name: str) -> str:
    """A name for where unsent answers belong: another store's must never be sent to this one."""
    text = f"{place}\n{project.project_id}\n{project.created_at.isoformat()}\n{annotator_name}"
    return "fedlens-" + hashlib.sha256(text.encode()).hexdigest()[:24]


def _receipts(scope: str) -> Receipts:
    kept = st.session_state.setdefault("receipts", {})
    receipts: Receipts = kept.setdefault(scope, Receipts())
    return receipts


@st.fragment
def _desk(project: StoredProject) -> None:
    """The labelling desk; each batch of answers redraws this much and no more."""
    with plain_errors():
        name, user_id = annotator()
        scope = scope_of(store().place, project, name)
        receipts = _receipts(scope)
        data = desk_data(
            scope=scope,
            labels=store().labels(project.project_id),
            queue=store().queue(project.project_id, user_id, QUEUE_LENGTH),
            progress=store().progress(project.project_id, user_id),
            acked=receipts.acked,
            undone=receipts.undone,
            error=receipts.error,
        )
        labeller(
            data,
            key=f"desk-{scope}",
            on_answers=lambda sent: take(store(), project.project_id, user_id, sent, receipts),
        )


def _work(projects: list[StoredProject]) -> None:
    by_id = {str(project.project_id): project for project in reversed(projects)}
    project = pick("Project", by_id, lambda one: one.name, PROJECT_PARAMETER)
    run = store().run(project.run_id)
    privacy_warning(run)
    st.caption(
        f"Synthetic samples of run {run.name} · answers are stored as **{annotator()[0]}** · "
        "which class a sample was requested for is not shown, so that it does not sway you"
    )
    if project.instructions:
        st.info(project.instructions, icon=":material/menu_book:")
    st.caption(GUIDE)
    _desk(project)
    with st.expander("Export labels"):
        _exports(project)


def _exports(project: StoredProject) -> None:
    """A download for each exporter; a file is made when it is asked for."""
    answered = len(store().annotations(project.project_id))
    if not answered:
        st.caption("Nothing to export yet: there are no answers.")
        return
    st.caption(f"{answered:,} answers of all annotators, each with its sample's provenance.")
    for name in EXPORTERS:
        exporter = EXPORTERS[name]
        st.download_button(
            exporter.title,
            partial(_exported, exporter, store(), project.project_id),
            file_name=f"labels-{project.project_id}{exporter.suffix}",
            mime=exporter.media_type,
            key=f"export-{name}-{project.project_id}",
            on_click="ignore",
        )


def _exported(exporter: Exporter, source: Store, project_id: int) -> bytes:
    return exporter.export(source.labelled_samples(project_id))


def _open(project_id: int) -> None:
    """Turn to a project that was just made."""
    st.query_params[PROJECT_PARAMETER] = str(project_id)
    st.session_state.pop("picked_project", None)
    st.rerun()


def render() -> None:
    """Show the page."""
    st.title("Annotate")
    with plain_errors():
        runs = [run for run in store().runs() if store().requested_classes(run.run_id)]
        projects = store().projects()
        if not runs:
            st.info("**Nothing to label yet.** Labels go onto samples, and samples come from runs.")
            return
        if projects:
            _work(projects)
            with st.expander("New project"):
                made = project_form.show(runs)
        else:
            st.markdown(
                "A **project** says what is labelled, with which labels, and by which keys."
            )
            made = project_form.show(runs)
        if made is not None:
            _open(made)


PAGE = DashboardPage("Annotate", ":material/label:", "annotate", 40, render)
