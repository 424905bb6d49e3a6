"""Compare: two batches side by side, what differs, and whether a person sees it blind."""

from __future__ import annotations

from functools import partial

import streamlit as st

from fedlens.dashboard.access.session import (
    RUN_PARAMETER,
    all_runs,
    choice,
    forget,
    pick,
    pinned_reference,
    plain_errors,
    run_title,
    within_store_of,
)
from fedlens.dashboard.samples.comparison import (
    BLIND,
    Side,
    offer_blind_test,
    read_blind_test,
    render_blind_test,
    render_means,
    render_statistics,
    side_of_address,
)
from fedlens.dashboard.samples.filters import ALL, choose_batch, classes_of
from fedlens.dashboard.samples.gallery import describe
from fedlens.dashboard.summary.badges import privacy_warning
from fedlens.dashboard.widgets.grid import grid
from fedlens.dashboard.widgets.pages import PAGES, DashboardPage
from fedlens.store import RunRecord

OTHER = "with"
PICKED = "picked_in_comparison"


def _side(
    runs: list[RunRecord],
    label: str,
    run_parameter: str,
    batch: str,
    beside: Side | None = None,
) -> Side | None:
    by_id = {run.run_id: run for run in runs}
    run = pick(label, by_id, run_title, run_parameter)
    same = beside is not None and beside.run.run_id == run.run_id
    with within_store_of(run.run_id):
        first = beside.batch if beside is not None and same else None
        chosen = choose_batch(run, batch, with_all=False, beside=first)
    return None if chosen is None else Side(run, chosen)


def _class(one: Side, other: Side) -> int | None:
    numbers = sorted({*_classes(one)} & {*_classes(other)})
    if not numbers:
        return None
    called = {ALL: "All", **{str(at): name for at, name in enumerate(one.run.class_names)}}
    said = choice("Class", [ALL, *map(str, numbers)], lambda c: called.get(c, c), "class")
    return None if said == ALL else int(said)


def _classes(side: Side) -> list[int]:
    with within_store_of(side.run.run_id):
        return list(classes_of(side.run.run_id))


def _grid(side: Side, class_: int | None, key: str) -> None:
    with within_store_of(side.run.run_id):
        data = describe(side.run, side.batch, classes=None if class_ is None else [class_])
    if data is None:
        st.info("This side has no samples.")
        return
    grid(data, key=key, on_pick=partial(_remember, side.run.run_id))
    picked = st.session_state.pop(PICKED, None)
    if picked is not None:
        page = PAGES["samples"].in_navigation()
        st.switch_page(page, query_params=picked)


def _remember(run_id: str, sample_id: int) -> None:
    """A click on a sample opens it on its own page."""
    st.session_state[PICKED] = {RUN_PARAMETER: run_id, "sample": str(sample_id)}


def _pictures(one: Side, other: Side) -> None:
    class_ = _class(one, other)
    for column, side, key in zip(st.columns(2, gap="large"), (one, other), "ab", strict=True):
        with column:
            _grid(side, class_, f"compared-{key}-{side.key}")


def _blind() -> bool:
    """Show the blind test that the address holds, and nothing that names its sides."""
    test = read_blind_test(st.query_params.get(BLIND, ""))
    one, other = side_of_address(RUN_PARAMETER, "batch"), side_of_address(OTHER, "batch2")
    if test is None or one is None or other is None:
        return False
    st.markdown("#### Which of these are the faulty ones?")
    render_blind_test(test, one, other)
    if st.button("Back to the comparison", key="blind-end"):
        del st.query_params[BLIND]
        st.rerun()
    return True


def render() -> None:
    """Show the page."""
    st.title("Compare")
    with plain_errors():
        if _blind():
            return
        runs = all_runs(with_samples=True)
        if not runs:
            st.info("**No samples yet.** Samples come from runs; the page *Runs* says how.")
            return
        left, right = st.columns(2, gap="large")
        with left:
            one = _side(runs, "A", RUN_PARAMETER, "batch")
        with right:
            # Another run than A's, where there is one: the pinned reference run first.
            others = [run for run in runs if one and run.run_id != one.run.run_id]
            pinned = None if one is None else pinned_reference(one.run)
            others.sort(key=lambda run: run.run_id != pinned)
            if one is not None and others:
                forget(OTHER, one.run.run_id)
            shown = [*others, *[run for run in runs if run not in others]]
            other = _side(shown, "B", OTHER, "batch2", one)
        if one is None or other is None:
            st.info("One side has no samples yet.")
            return
        for run in {side.run.run_id: side.run for side in (one, other)}.values():
            with within_store_of(run.run_id):
                privacy_warning(run)
        if one.key == other.key:
            st.warning("A and B are the same batch: choose another run or batch for one of them.")
        _pictures(one, other)
        labelled = any(_classes(side) for side in (one, other))
        st.markdown("#### Mean pictures by class" if labelled else "#### Mean pictures")
        render_means(one, other)
        st.markdown("#### What differs")
        render_statistics(one, other, runs)
        st.markdown("#### Blind: which of these is the faulty one?")
        offer_blind_test(one, other)


PAGE = DashboardPage("Compare", ":material/compare:", "compare", 35, render)
