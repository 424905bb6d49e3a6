"""Students of a project on the page of results: one click, how far it is, and the curve."""

from __future__ import annotations

import altair as alt
import streamlit as st

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import plain_errors, store_url
from fedlens.dashboard.faults import panel
from fedlens.dashboard.students.jobs import SHARES, ProjectLabels, StudentCurve, StudentJobs
from fedlens.dashboard.widgets.plain_text import plain
from fedlens.dashboard.widgets.tables import frame
from fedlens.store import StoredProject
from fedlens.store.engine import locate

REFRESH_SECONDS = 2
SIMULATION = (
    "**Simulation only**: tested on {tested_on}, whose use is in no ledger and no budget. A "
    "federation with real users has no such images on the server."
)


UNDER_WAY = "**Simulation only**: tested on real images, whose use is in no ledger and no budget."


@st.cache_resource(show_spinner=False)
def student_jobs() -> StudentJobs:
    """All training of this server."""
    return StudentJobs()


def labels_of(project: StoredProject) -> ProjectLabels | None:
    """What students of a project are trained from; ``None`` where the run's folder is elsewhere."""
    place = panel.place_of(project.run_id)
    if place is None:
        return None
    # A file's path alone: another store's URL may hold a password, which others would see.
    own = locate(store_url()).path
    path = "" if own is None else str(own.absolute())
    return ProjectLabels(place, project.project_id, project.name, path)


def render_students(project: StoredProject, answered: int) -> None:
    """Put the section on the page.

    Args:
        project: whose labels teach.
        answered: how many samples have an answer now.
    """
    st.subheader("What the labels are worth")
    labels = labels_of(project)
    if labels is None:
        st.caption(
            "The folder of the project's run was not found on this machine, so no student can be "
            "trained here. FEDLENS_RUNS may name the folder that holds run folders."
        )
        return
    job, taught = student_jobs().job(labels), student_jobs().taught(labels)
    if taught is not None:
        _curve(taught)
    if job is not None and job.state != "failed":
        _waiting(labels)
        return
    if job is not None:
        st.warning(f"Training ended with an error: {plain(job.why)}")
    if account().may("manage"):
        words = "Train a student from these labels" if taught is None else "Train anew"
        about = f"On a tenth, a quarter, half and all of {answered:,} answers; some minutes."
        if st.button(words, key="train_student", icon=":material/school:", help=about):
            require("manage")
            student_jobs().ask(labels)
            st.rerun()
    elif taught is None:
        st.caption("Engineers and admins train students from labels.")


@st.fragment(run_every=REFRESH_SECONDS)
def _waiting(labels: ProjectLabels) -> None:
    with plain_errors():
        require("look")
        job = student_jobs().job(labels)
        if job is None or job.state == "failed":
            st.rerun()
            return
        clock = f"{job.seconds // 60}:{job.seconds % 60:02d}"
        doing = "Waiting for another training" if job.state == "waiting" else "Training students"
        done = len(job.done)
        st.progress(min(1.0, done / SHARES), text=f"{doing}: {done} of {SHARES} trained, {clock}")
        for line in job.done:
            st.caption(line)
        if job.done:
            st.caption(UNDER_WAY)


def _curve(taught: StudentCurve) -> None:
    most, best = taught.curve[-1]
    st.metric(f"Right with the {most:,} labels that there were", f"{best:.1%}")
    rows = frame([{"labels": labels, "accuracy": right} for labels, right in taught.curve])
    base = alt.Chart(rows).encode(
        alt.X("labels:Q", title="labels"),
        alt.Y("accuracy:Q", title="test images right", axis=alt.Axis(format="%")),
        tooltip=["labels", alt.Tooltip("accuracy:Q", format=".1%")],
    )
    chart = base.mark_line(point=True).properties(height=220)
    st.altair_chart(chart, alt="Line chart of students' accuracy against the number of labels")
    if taught.simulation_only:
        st.caption(SIMULATION.format(tested_on=taught.tested_on))
