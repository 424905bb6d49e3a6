"""Annotate: choose or make a project, then label its samples, one key each."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.account import account, plain
from fedlens.dashboard.access.session import pick, plain_errors, store
from fedlens.dashboard.labelling import project_form
from fedlens.dashboard.labelling.answers import scope_of
from fedlens.dashboard.labelling.elsewhere import render_elsewhere
from fedlens.dashboard.samples.filters import classes_of
from fedlens.dashboard.summary.badges import privacy_warning
from fedlens.dashboard.widgets.labeller import desk_data, labeller
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import RunRecord, StoredProject

PROJECT_PARAMETER = "project"
GUIDE = (
    "Press a label's key, or click it. The next sample follows at once; your answers are saved as "
    "you go. **Space** skips, **U** or **Backspace** takes the last answer back, **Enter** writes "
    "a note. Click one of your last answers to change it."
)
SEVERAL = " Hold **Shift** to mark further labels first."


def _work(projects: list[StoredProject]) -> None:
    by_id = {str(project.project_id): project for project in reversed(projects)}
    project = pick("Project", by_id, lambda one: one.name, PROJECT_PARAMETER)
    run, visitor = store().run(project.run_id), account()
    privacy_warning(run)
    hidden = "which class a sample was requested for is not shown, so that it does not sway you"
    if not classes_of(project.run_id):
        hidden = "nobody has labelled these data yet: the labels are yours alone"
    st.caption(
        f"Synthetic samples of run {plain(run.name)} · answers are stored as "
        f"**{plain(visitor.name)}**" + (f" · {hidden}" if project.blind else "")
    )
    if project.instructions:
        st.info(plain(project.instructions), icon=":material/menu_book:")
    st.caption(GUIDE + (SEVERAL if project.several else ""))
    scope = scope_of(store().place, project, visitor.name)
    labels = store().labels(project.project_id)
    labeller(desk_data(scope, project, labels), key=f"desk-{scope}")


def _open(project_id: int) -> None:
    """Turn to a project that was just made."""
    st.query_params[PROJECT_PARAMETER] = str(project_id)
    st.session_state.pop("picked_project", None)
    st.rerun()


def render() -> None:
    """Show the page."""
    st.title("Annotate")
    with plain_errors():
        runs = store().runs(with_samples=True)
        projects = store().projects()
        if not runs:
            samples = "Labels go onto samples, and samples come from runs."
            render_elsewhere("annotate", "**Nothing to label yet.**", samples)
            return
        manages = account().may("manage")
        if projects:
            _work(projects)
        elif not manages:
            render_elsewhere(
                "annotate", "**Nothing to label yet.**", "An engineer makes a project first."
            )
        made = _new_project(runs, bool(projects)) if manages else None
        if made is not None:
            _open(made)


def _new_project(runs: list[RunRecord], others: bool) -> int | None:
    if others:
        with st.expander("New project"):
            return project_form.render_project_form(runs)
    st.markdown("A **project** says what is labelled, with which labels, and by which keys.")
    return project_form.render_project_form(runs)


PAGE = DashboardPage("Annotate", ":material/label:", "annotate", 40, render, "annotate")
