"""Review: how far annotators agree, and what counts where they do not."""

from __future__ import annotations

from functools import partial

import streamlit as st

from fedlens.dashboard.access.account import account, put_closed, require
from fedlens.dashboard.access.session import pick, plain_errors, store
from fedlens.dashboard.labelling import agreement_tables as tables
from fedlens.dashboard.labelling.answers import scope_of
from fedlens.dashboard.labelling.elsewhere import render_elsewhere
from fedlens.dashboard.widgets.display import frame, put_table
from fedlens.dashboard.widgets.labeller import desk_data, labeller
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import GivenAnswer, StoredLabel, StoredProject

GUIDE = (
    "Press a label's key, or click it: that is what the sample counts as. **Shift** and the key "
    "also make it a gold sample, **Delete** excludes it, **Space** leaves it for later, **U** "
    "takes the last decision back, **Enter** writes a note. Click a decision to look at it again."
)
BLIND = " The project is blind: neither the requested class nor the names of annotators are shown."
MOST_COMPARED = 5000
"""Samples that agreement is computed of: the first in the order of the queue."""
CAPPED = (
    f"Agreement is of {MOST_COMPARED:,} samples with two answers or more: the first in the order "
    "of the queue. Where that is an order of interest they are the hardest."
)
SHARED_ALONE = (
    "These tables are of samples that two people or more have answered; of several labels in one "
    "answer the first counts."
)
ALPHA_HELP = (
    "Krippendorff's alpha: 1 where all agree, 0 where they agree as by chance. In brackets the 95% "
    "interval of 1,000 bootstrap draws of samples. Above .8 labels are usually called reliable, "
    "below .67 not."
)


def _agreement(
    answers: list[GivenAnswer], labels: list[StoredLabel], project: StoredProject
) -> None:
    overall = tables.overall_agreement(answers, labels)
    left, middle, right = st.columns(3)
    left.metric("Agreement (alpha)", tables.describe_agreement(overall), help=ALPHA_HELP)
    middle.metric("Samples with two labels or more", f"{overall.items:,}")
    right.metric("Differing, undecided", f"{store().count_disputed(project.project_id):,}")
    if len({one.sample_id for one in answers}) >= MOST_COMPARED:
        st.caption(CAPPED)
    put_closed("Annotators and labels", "review", partial(_tables, answers, labels, project))


def _tables(answers: list[GivenAnswer], labels: list[StoredLabel], project: StoredProject) -> None:
    st.caption(SHARED_ALONE)
    names = store().user_names()
    records = store().annotator_records(project.project_id, answers)
    for title, rows in (
        ("Annotators", tables.annotator_rows(records)),
        ("Two by two (Cohen's kappa)", tables.pair_rows(answers, labels, names)),
        ("Label by label (alpha)", tables.label_rows(answers, labels)),
    ):
        st.caption(title)
        put_table(frame(rows), title)


def _desk(project: StoredProject, labels: list[StoredLabel]) -> None:
    scope = scope_of(store().place, project, account().name)
    st.caption(GUIDE + (BLIND if project.blind else ""))
    labeller(desk_data(scope, project, labels, review=True), key=f"review-{scope}")


def render() -> None:
    """Show the page."""
    st.title("Review")
    with plain_errors():
        require("review")
        projects = store().projects()
        if not projects:
            render_elsewhere(
                "review", "**Nothing to review yet.**", "Make a project under Annotate."
            )
            return
        by_id = {str(project.project_id): project for project in reversed(projects)}
        project = pick("Project", by_id, lambda one: one.name, "project")
        labels = store().labels(project.project_id)
        if not store().has_answers(project.project_id):
            st.info("**No answers yet.** Annotators give them under Annotate.")
            return
        _desk(project, labels)
        # After the desk, which is on the screen while these are still read.
        answers = store().answers(project.project_id, shared=MOST_COMPARED)
        _agreement(answers, labels, project)


PAGE = DashboardPage("Review", ":material/rule:", "review", 42, render, "review")
