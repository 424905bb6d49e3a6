"""The form that makes an annotation project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import streamlit as st

from fedlens.dashboard.access.account import require
from fedlens.dashboard.access.session import run_title, store
from fedlens.dashboard.widgets.display import Frame, frame, rows_of
from fedlens.dashboard.widgets.markup import plain
from fedlens.foundation.names import is_plain_name
from fedlens.store import (
    LabelKind,
    LabelRecord,
    ProjectRecord,
    Purpose,
    QueueOrder,
    RunRecord,
    StoreError,
)

CLASS_KEYS = "1234567890abdefghijklmnopstvwyz"
UNKNOWN = LabelRecord(key="q", name="unknown class", kind="unknown")
UNKNOWN_KIND = LabelRecord(key="q", name="unknown", kind="unknown")
"""The same where there are no classes yet."""
ARTEFACT = LabelRecord(key="x", name="artefact", kind="artefact")
RESERVED = {"u": "it is Undo", "c": "the page uses it", "r": "the page uses it"}
ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789") - RESERVED.keys()
KINDS: tuple[LabelKind, ...] = get_args(LabelKind)


def default_labels(classes: Sequence[int], run: RunRecord) -> list[LabelRecord]:
    """One label a class, by the name that it has, then "unknown class" and "artefact".

    The digit of a class is its key. Beyond ten classes the letters follow; classes for which no
    key is left are left out, to be named by hand.

    Args:
        classes: those that samples were requested for.
        run: that says what they are called.
    """
    free = [key for key in CLASS_KEYS if key not in {str(c) for c in classes}]
    taken = {UNKNOWN.name, ARTEFACT.name}
    labels = []
    for number in classes:
        name = run.name_of_class(number)
        if not is_plain_name(name) or name in taken:
            name = f"class {number}"
        key = str(number) if number <= 9 else (free.pop(0) if free else "")
        if key and name not in taken:
            labels.append(LabelRecord(key=key, name=name))
            taken.add(name)
    return [*labels, UNKNOWN, ARTEFACT]


def read_labels(rows: Iterable[Mapping[str, object]]) -> tuple[LabelRecord, ...]:
    """The labels of an edited table with columns ``key``, ``name`` and ``kind``.

    Lines without a key and a name are passed over.

    Raises:
        StoreError: a key is not one free letter or digit, is there twice, or a name is missing.
    """
    labels = [_read(row) for row in rows if _text(row, "key") or _text(row, "name")]
    if not labels:
        raise StoreError("The label set is empty: give at least one key with a name.")
    for part in ("key", "name"):
        values = [str(getattr(label, part)) for label in labels]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise StoreError(f"The {part} {twice[0]!r} is there twice: make it different.")
    return tuple(labels)


def _read(row: Mapping[str, object]) -> LabelRecord:
    key, name, kind = _text(row, "key").lower(), _text(row, "name"), _text(row, "kind") or "class"
    if key in RESERVED:
        raise StoreError(f"The key {key!r} cannot be used ({RESERVED[key]}): choose another.")
    if key not in ALLOWED:
        raise StoreError(f"The key {key!r} cannot be used: give one letter a–z or one digit.")
    if not name:
        raise StoreError(f"The label with key {key!r} has no name: give it one.")
    if kind not in KINDS:
        raise StoreError(f"The kind {kind!r} of {name!r} is none of {', '.join(KINDS)}.")
    return LabelRecord(key=key, name=name, kind=kind)


def _text(row: Mapping[str, object], column: str) -> str:
    """A cell's text; an empty cell is None or, from a numeric column, NaN."""
    value = row.get(column)
    return value.strip() if isinstance(value, str) else ""


PURPOSE_WORDS: dict[Purpose, str] = {
    "curated": "Curated batches",
    "faithful": "Faithful batches (neither guided nor filtered)",
    "strip": "Strips (a few samples each round)",
}
ORDER_WORDS: dict[QueueOrder, str] = {
    "random": "Shuffled (the same for all annotators)",
    "stored": "As drawn",
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
    classes = store().requested_classes(run_id)
    known = default_labels(classes, store().run(run_id)) if classes else _named(run_id)
    with st.form(f"new-project-{run_id}", border=True):
        name = st.text_input("Name", value=f"Labels of {by_id[run_id].name}", max_chars=120)
        instructions = st.text_area(
            "Instructions for the annotators", placeholder="What counts as what?", height=80
        )
        purpose, order = _scope(run_id, labelled=bool(classes))
        overlap, blind, several = _teamwork(labelled=bool(classes))
        unknown = "*unknown class*: a real thing of no class here"
        if not classes:
            unknown = "*unknown*: a real thing of no such name"
        st.caption(
            f"Labels: one key each. {unknown}. *artefact*: not a real thing, a fault of the "
            "generator."
        )
        table = _labels(run_id, known)
        noise = store().worth(run_id) == "noise"
        even_noise = noise and st.checkbox("Label noise all the same")
        if not st.form_submit_button("Create project", type="primary"):
            return None
    more = {"purpose": purpose, "order": order, "overlap": overlap}
    more |= {"blind": blind, "several": several}
    return _create(name, run_id, instructions, table, more, even_noise=even_noise)


def _teamwork(*, labelled: bool) -> tuple[int, bool, bool]:
    left, middle, right = st.columns(3)
    overlap = left.number_input(
        "Annotators for each sample", 0, 20, 0, help="0: each annotator labels every sample"
    )
    blind = True
    if labelled:
        blind = middle.checkbox("Blind", True, help="Annotators do not see the requested class")
    several = right.checkbox("Several labels a sample")
    return int(overlap), blind, several


def _scope(run_id: str, *, labelled: bool) -> tuple[Purpose, QueueOrder]:
    counts = dict.fromkeys(PURPOSE_WORDS, 0)
    for batch in store().batches(run_id):
        counts[batch.purpose] = counts.get(batch.purpose, 0) + batch.count
    kinds = [kind for kind in PURPOSE_WORDS if counts[kind]]
    left, right = st.columns(2)
    purpose = left.selectbox(
        "Samples",
        kinds,
        format_func=lambda kind: f"{PURPOSE_WORDS[kind]} · {counts[kind]:,}",
    )
    orders = [one for one in ORDER_WORDS if labelled or one != "uncertainty"]
    order = right.selectbox("Order", orders, format_func=lambda o: ORDER_WORDS[o])
    return purpose, order


def labels_of_names(text: str, *, unknown: bool, artefact: bool) -> list[LabelRecord]:
    """Labels by the names that somebody typed, each with a key of its own.

    A name's key is its first letter or digit that is free, else any that is.

    Args:
        text: names, a line each or with commas between.
        unknown: also "unknown".
        artefact: also "artefact".

    Raises:
        StoreError: more names than keys, or a name twice.
    """
    names = [name.strip() for name in re.split(r"[,;\n]", text) if name.strip()]
    more = [label for label, wanted in ((UNKNOWN_KIND, unknown), (ARTEFACT, artefact)) if wanted]
    free = [key for key in CLASS_KEYS if key not in {label.key for label in more}]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise StoreError(f"The label {twice!r} is there twice: name each once.")
    if len(names) > len(free):
        raise StoreError(f"{len(names)} labels need a key each, and there are {len(free)}.")
    labels = []
    for name in names:
        key = next((one for one in name.lower() if one in free), free[0])
        free.remove(key)
        labels.append(LabelRecord(key=key, name=name))
    return [*labels, *more]


def _named(run_id: str) -> list[LabelRecord]:
    """Labels of data that nobody labelled: people name them."""
    left, right = st.columns([3, 2])
    text = left.text_input(
        "Names of the labels",
        key=f"names-{run_id}",
        placeholder="with commas between, such as: cat, dog, bird",
        help="Nobody has labelled these data: say what there is to see. Keys can be changed below.",
    )
    unknown = right.checkbox("“unknown”: a real thing of no such name", True, key=f"unk-{run_id}")
    artefact = right.checkbox("“artefact”: not a real thing", True, key=f"art-{run_id}")
    try:
        return labels_of_names(text, unknown=unknown, artefact=artefact)
    except StoreError as error:
        st.error(f"These labels cannot be used. {plain(error)}")
        return []


def _labels(run_id: str, labels: Sequence[LabelRecord]) -> Frame:
    names = hashlib.sha256("|".join(f"{one.key}{one.name}" for one in labels).encode()).hexdigest()
    return st.data_editor(
        frame([{"key": x.key, "name": x.name, "kind": x.kind} for x in labels]),
        num_rows="dynamic",
        hide_index=True,
        height=min(505, 38 + 35 * (len(labels) + 1)),
        column_config={
            "key": st.column_config.TextColumn("Key", max_chars=1, width="small"),
            "name": st.column_config.TextColumn("Label", max_chars=60, width="medium"),
            "kind": st.column_config.SelectboxColumn("Kind", options=list(KINDS), default="class"),
        },
        key=f"labels-{run_id}-{names[:12]}",
    )


def _create(
    name: str,
    run_id: str,
    instructions: str,
    table: Frame,
    more: Mapping[str, Any],
    *,
    even_noise: bool,
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
            ),
            even_noise=even_noise,
        )
        store().log(actor.name, "project made", name.strip())
    except StoreError as error:
        st.error(f"The project was not made. {plain(error)}")
        return None
    return made
