"""Results: what samples count as, how many are artefacts, and labels on their way out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from urllib.parse import quote

import streamlit as st

from fedlens.dashboard.access.account import account, plain, require, require_later
from fedlens.dashboard.access.session import pick, plain_errors, store
from fedlens.dashboard.labelling import agreement_tables as tables
from fedlens.dashboard.labelling import students
from fedlens.dashboard.labelling.elsewhere import render_elsewhere
from fedlens.dashboard.samples.batches import drop_damaged
from fedlens.dashboard.samples.images import base64_text
from fedlens.dashboard.summary.badges import privacy_warning
from fedlens.dashboard.widgets.markup import picture
from fedlens.dashboard.widgets.matrix import matrix
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import (
    EXPORTERS,
    Exporter,
    Member,
    Store,
    StoredLabel,
    StoredProject,
    labelling_interface,
)

SHOWN = 60
CELL = "cell"
"""Of the address: row and column of the table."""
Counts = Mapping[tuple[int | None, int | None], int]
BIASED = (
    "This queue was not in random order. Shares are of the samples that chance alone put into it: "
    "the others were chosen because they looked interesting."
)


def _shares(project: StoredProject, counts: Counts, labels: list[StoredLabel]) -> None:
    columns, classed = st.columns(3), any(requested is not None for requested, _ in counts)
    columns[0].metric("Samples answered", f"{sum(counts.values()):,}")
    if project.order == "uncertainty":
        counts = store().label_table(project.project_id, control=True)
        st.caption(BIASED)
    for column, kind, title in (
        (columns[1], "artefact", "Artefacts"),
        (columns[2], "unknown", "Unknown classes" if classed else "Unknown"),
    ):
        hits, total, low, high = tables.count_share(counts, labels, kind)
        share = f"{hits / total:.1%}" if total else "–"
        column.metric(title, share, help=f"{hits} of {total} samples with a label")
        column.caption(f"95% interval: {low:.1%} to {high:.1%}")


def _matrix(project: StoredProject, counts: Counts, labels: list[StoredLabel]) -> None:
    """What samples count as, by requested class, and the samples of the cell that was clicked."""
    table = tables.class_table(counts, labels, store().run(project.run_id))
    picked = _picked(len(table.rows), len(table.names))
    matrix(
        table.counts,
        table.rows,
        table.names,
        title=tables.title_of(counts),
        corner="Samples" if table.requested == [None] else "Requested class",
        expected=table.expected,
        picked=picked,
        key=f"matrix-{project.project_id}",
        on_pick=lambda row, column: st.query_params.update({CELL: f"{row}-{column}"}),
    )
    st.caption(
        "What each sample counts as, once: a reviewer's decision, or else the majority's label. "
        "Click a number to see its samples; the stronger its colour, the more of its row it holds."
    )
    if picked is not None:
        _cell(project, counts, table, picked)


def _picked(rows: int, columns: int) -> tuple[int, int] | None:
    """The cell that the address names, if there is one."""
    found = re.fullmatch(r"([0-9]{1,4})-([0-9]{1,4})", st.query_params.get(CELL, ""))
    if found is None or int(found[1]) >= rows or int(found[2]) >= columns:
        return None
    return int(found[1]), int(found[2])


def _cell(
    project: StoredProject, counts: Counts, table: tables.ClassTable, picked: tuple[int, int]
) -> None:
    """The samples of one cell, each a link to all that is known of it."""
    requested, label = table.requested[picked[0]], table.labels[picked[1]]
    name = table.names[picked[1]]
    found = store().samples_counting_as(project.project_id, label, requested, SHOWN)
    total = counts.get((requested, label), 0)
    run = store().run(project.run_id)
    of = "" if requested is None else f" of {plain(run.name_of_class(requested))}"
    more = f", the first {SHOWN}" if total > SHOWN else ""
    st.markdown(f"**{total:,} samples{of} that count as {plain(name)}**{more}")
    links = []
    for sample in drop_damaged(store().samples_by_id(found)):
        address = escape(f"/samples?run={quote(project.run_id)}&sample={sample.sample_id}")
        drawn = picture(base64_text(sample.png), f"Synthetic sample {sample.sample_id}")
        links.append(f'<a href="{address}">{drawn}</a>')
    if links:
        st.html(f'<div style="display:flex;flex-wrap:wrap;gap:6px">{"".join(links)}</div>')


def _exports(project: StoredProject) -> None:
    """A download for each exporter; a file is made when it is asked for."""
    st.markdown("#### Export")
    if not account().may("review"):
        st.caption("Reviewers, engineers and admins export labels.")
        return
    st.caption(
        "Each file holds the samples' provenance and both privacy statements. Tables and Label "
        "Studio's JSON name annotators and have their notes; the data sets for publishing number "
        "annotators and have no notes. Labels come back by "
        "`fedlens labels import`, onto samples that are here already. A student is trained on them "
        "with this command; `--out FILE` also writes a label model, by which devices may name "
        "their own records:"
    )
    # For a shell, into which people copy it: a name must not become a command there.
    st.code(f"fedlens student RUN_DIR --project {shlex.quote(project.name)} --curve", "bash")
    allowed = require_later("review")
    with st.container(horizontal=True):
        for name in EXPORTERS:
            exporter = EXPORTERS[name]
            st.download_button(
                exporter.title,
                partial(_exported, name, exporter, store(), project, allowed),
                file_name=f"labels-{project.project_id}{exporter.suffix}",
                mime=exporter.media_type,
                key=f"export-{name}-{project.project_id}",
                on_click="ignore",
            )
        interface = labelling_interface(store().labels(project.project_id), several=project.several)
        st.download_button(
            "Label Studio (interface)",
            interface,
            file_name=f"labels-{project.project_id}.xml",
            mime="application/xml",
            key=f"export-interface-{project.project_id}",
            on_click="ignore",
            help="Label Studio shows the JSON under it: paste it as the labelling interface.",
        )


def _exported(
    name: str,
    exporter: Exporter,
    source: Store,
    project: StoredProject,
    allowed: Callable[[], Member],
) -> bytes:
    source.log(allowed().name, "exported", f"{project.name} ({name})")
    return exporter.export(source.labelled_samples(project.project_id))


def render() -> None:
    """Show the page."""
    st.title("Results")
    with plain_errors():
        require("look")
        projects = store().projects()
        if not projects:
            render_elsewhere("results", "**No results yet.**", "Make a project under Annotate.")
            return
        by_id = {str(project.project_id): project for project in reversed(projects)}
        project = pick("Project", by_id, lambda one: one.name, "project")
        privacy_warning(store().run(project.run_id))
        labels = store().labels(project.project_id)
        counts = store().label_table(project.project_id)
        if not counts:
            st.info("**Nothing to export yet: there are no answers.**")
            return
        _shares(project, counts, labels)
        _matrix(project, counts, labels)
        students.render_students(project, sum(counts.values()))
        _exports(project)


PAGE = DashboardPage("Results", ":material/table_chart:", "results", 44, render)
