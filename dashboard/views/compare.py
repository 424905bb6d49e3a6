"""Compare: two batches side by side, what differs, and whether a person sees it blind."""

from __future__ import annotations

import streamlit as st

from fedlens.dashboard.access.session import (
    RUN_PARAMETER,
    choice,
    choose_page,
    pick,
    plain_errors,
    run_title,
    store,
)
from fedlens.dashboard.samples import images
from fedlens.dashboard.samples.batches import drop_damaged
from fedlens.dashboard.samples.comparison import (
    Side,
    render_blind_test,
    render_means,
    render_statistics,
)
from fedlens.dashboard.samples.filters import ALL, choose_batch, classes_of
from fedlens.dashboard.summary.badges import privacy_warning
from fedlens.dashboard.widgets.grid import grid, grid_data
from fedlens.dashboard.widgets.markup import whole_factor
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.foundation.unlabelled import requested_words
from fedlens.store import RunRecord, StoredSample

AT_ONCE = 200
OTHER = "with"
TILE = 40
"""Pixels of a sample, about: a whole number for each of its own."""


def _side(runs: list[RunRecord], label: str, run_parameter: str, batch: str) -> Side | None:
    by_id = {run.run_id: run for run in runs}
    run = pick(label, by_id, run_title, run_parameter)
    chosen = choose_batch(run, batch, with_all=False)
    return None if chosen is None else Side(run, chosen)


def _class(one: Side, other: Side) -> int | None:
    numbers = sorted({*classes_of(one.run.run_id)} & {*classes_of(other.run.run_id)})
    if not numbers:
        return None
    said = choice("Class", [ALL, *map(str, numbers)], lambda c: "All" if c == ALL else c, "class")
    return None if said == ALL else int(said)


def _nothing(_: int) -> None:
    """A click opens nothing here."""


def _grid(side: Side, class_: int | None, offset: int, key: str) -> None:
    found = drop_damaged(store().samples(side.wanted(class_), offset=offset, limit=AT_ONCE))
    if not found:
        st.info("This side has no samples on this page.")
        return
    sprite = images.sprite([one.png for one in found])
    names = [_name(one) for one in found]
    factor = whole_factor(sprite.width, sprite.height, TILE)
    data = grid_data(sprite, [one.sample_id for one in found], names, selected=None, factor=factor)
    grid(data, key=key, on_pick=_nothing)


def _name(sample: StoredSample) -> str:
    return f"Sample {sample.sample_id} · {requested_words(sample.requested_class)}"


def _pictures(one: Side, other: Side) -> None:
    with st.container(horizontal=True):
        class_ = _class(one, other)
        total = max(side.total(class_) for side in (one, other))
        offset = choose_page(total, AT_ONCE, "Page of both")
    for column, side, key in zip(st.columns(2, gap="large"), (one, other), "ab", strict=True):
        with column:
            _grid(side, class_, offset, f"compared-{key}-{side.batch.batch_id}")


def render() -> None:
    """Show the page."""
    st.title("Compare")
    with plain_errors():
        runs = [run for run in store().runs() if store().batches(run.run_id)]
        if not runs:
            st.info("**No samples yet.** Samples come from runs; the page *Runs* says how.")
            return
        left, right = st.columns(2, gap="large")
        with left:
            one = _side(runs, "A", RUN_PARAMETER, "batch")
        with right:
            # Another run than A's, where there is one: the pinned reference run first.
            others = [run for run in runs if one and run.run_id != one.run.run_id]
            pinned = None if one is None else store().reference_of(one.run.run_id)
            others.sort(key=lambda run: run.run_id != pinned)
            other = _side([*others, *[r for r in runs if r not in others]], "B", OTHER, "batch2")
        if one is None or other is None:
            st.info("One side has no samples yet.")
            return
        privacy_warning(one.run)
        if other.run.run_id != one.run.run_id:
            privacy_warning(other.run)
        if one.batch.batch_id == other.batch.batch_id:
            st.warning("A and B are the same batch: choose another run or batch for one of them.")
        _pictures(one, other)
        labelled = any(classes_of(side.run.run_id) for side in (one, other))
        st.markdown("#### Mean pictures by class" if labelled else "#### Mean pictures")
        render_means(one, other)
        st.markdown("#### What differs")
        render_statistics(one, other, runs)
        st.markdown("#### Blind: which of these is the faulty one?")
        render_blind_test(one, other)


PAGE = DashboardPage("Compare", ":material/compare:", "compare", 35, render)
