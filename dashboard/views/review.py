"""Review: how far annotators agree, and what counts where they do not."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.account import plain, require
from fedlens.dashboard.access.session import pick, plain_errors, store
from fedlens.dashboard.labelling import agreement_tables as tables
from fedlens.dashboard.samples.batches import drop_damaged
from fedlens.dashboard.samples.images import render_image, sheet
from fedlens.dashboard.widgets.display import frame
from fedlens.dashboard.widgets.markup import size_of, whole_factor
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import Adjudication, GivenAnswer, StoredLabel, StoredProject

MANY = 8
PICTURE = 112
"""Pixels of a sample, about."""
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
    with st.expander("Annotators and labels"):
        st.caption(SHARED_ALONE)
        names = store().user_names()
        for title, rows in (
            (
                "Annotators",
                tables.annotator_rows(store().annotator_records(project.project_id, answers)),
            ),
            ("Two by two (Cohen's kappa)", tables.pair_rows(answers, labels, names)),
            ("Label by label (alpha)", tables.label_rows(answers, labels)),
        ):
            st.caption(title)
            st.dataframe(frame(rows), hide_index=True, alt=title)


def _disputes(project: StoredProject, labels: list[StoredLabel]) -> None:
    waiting = store().disputed(project.project_id, limit=MANY)
    if not waiting:
        st.success("Nothing to decide: no answers differ.", icon=":material/check_circle:")
        return
    st.subheader("To decide")
    names = store().user_names()
    by_id = {label.label_id: label.name for label in labels}
    for sample_id in waiting:
        with st.container(border=True, key=f"dispute-{sample_id}"):
            _dispute(project, sample_id, labels, by_id, names)


def _dispute(
    project: StoredProject,
    sample_id: int,
    labels: list[StoredLabel],
    by_id: dict[int, str],
    names: dict[int, str],
) -> None:
    picture, said, choice = st.columns([1, 3, 3])
    sample = store().sample(sample_id)
    with picture:
        if drop_damaged([sample]):
            width, height = size_of(sample.png)
            factor = whole_factor(width, height, PICTURE)
            render_image(sheet([sample.png], 1), alt=f"Synthetic sample {sample_id}", factor=factor)
    for answer in store().answers_about(project.project_id, sample_id):
        label = "skipped" if answer.label_id is None else by_id[answer.label_id]
        note = f" · “{plain(answer.note)}”" if answer.note else ""
        said.markdown(f"**{plain(label)}** · {plain(names[answer.user_id])}{note}")
    said.caption(f"Requested as class {sample.requested_class}")
    options: list[int | None] = [*by_id, None]
    chosen = choice.selectbox(
        "It counts as",
        options,
        format_func=lambda one: "left out" if one is None else by_id[one],
        key=f"decision-{sample_id}",
    )
    gold = choice.checkbox(
        "Also a sample of gold", key=f"gold-{sample_id}", help="Served to every annotator"
    )
    if choice.button("Decide", key=f"decide-{sample_id}", type="primary"):
        _decide(project, sample_id, chosen, gold=gold)


def _decide(project: StoredProject, sample_id: int, label_id: int | None, *, gold: bool) -> None:
    visitor = require("review")
    store().adjudicate(
        Adjudication(
            project_id=project.project_id,
            sample_id=sample_id,
            user_id=visitor.user_id,
            label_id=label_id,
        )
    )
    if gold:
        store().set_gold(project.project_id, sample_id, label_id)
    store().log(visitor.name, "decided", f"{project.name}, sample {sample_id}")
    st.rerun()


def render() -> None:
    """Show the page."""
    st.title("Review")
    with plain_errors():
        require("review")
        projects = store().projects()
        if not projects:
            st.info("**Nothing to review yet.** Make a project under Annotate.")
            return
        by_id = {str(project.project_id): project for project in reversed(projects)}
        project = pick("Project", by_id, lambda one: one.name, "project")
        answers = store().answers(project.project_id, shared=MOST_COMPARED)
        labels = store().labels(project.project_id)
        if not store().label_table(project.project_id):
            st.info("**No answers yet.** Annotators give them under Annotate.")
            return
        _agreement(answers, labels, project)
        _disputes(project, labels)


PAGE = DashboardPage("Review", ":material/rule:", "review", 42, render, "review")
