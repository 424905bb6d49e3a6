"""Samples: a run's synthetic samples as one grid; a click shows where one comes from."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedlens.dashboard.access.session import (
    all_runs,
    choice,
    choose_page,
    pick_run,
    plain_errors,
    store,
)
from fedlens.dashboard.samples import images, tagging
from fedlens.dashboard.samples.batches import drop_damaged
from fedlens.dashboard.samples.filters import choose_samples
from fedlens.dashboard.samples.order import (
    ORDERS,
    find_alike,
    list_orders,
    render_map,
    sort_samples,
)
from fedlens.dashboard.summary.badges import privacy_warning, provenance
from fedlens.dashboard.summary.privacy import NOT_PRIVATE
from fedlens.dashboard.widgets.grid import grid, grid_data
from fedlens.dashboard.widgets.markup import plain, size_of, tag, whole_factor
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.foundation.unlabelled import requested_words
from fedlens.store import RunRecord, SampleFilter, StoredBatch, StoredSample, StoreError, decode_png

CLOSE_UP = 252
TAG_LINES = 20


def plane(sample: StoredSample) -> NDArray[np.uint8]:
    """The sample's pixels, uint8 [height, width] or [height, width, 3]."""
    pixels = decode_png(sample.png)
    return pixels[0] if pixels.shape[0] == 1 else np.moveaxis(pixels, 0, -1)


def answers_about(sample_id: int) -> list[str]:
    """The labels in force on a sample, over all projects of its run."""
    said = store().labels_on(sample_id)
    return [f"{'skipped' if label is None else label} ({project})" for project, label in said]


def render_close_up(run: RunRecord, sample: StoredSample) -> None:
    """Put the close-up on the page."""
    batch = store().batch(sample.batch_id)
    pixels = plane(sample)
    factor = max(1, CLOSE_UP // max(pixels.shape[:2]))
    images.render_image(
        pixels,
        factor=factor,
        alt=f"Synthetic sample {sample.sample_id}, {requested_words(sample.requested_class)}",
    )
    if not batch.private:
        st.badge(NOT_PRIVATE, color="red", icon=":material/warning:")
    with st.container(border=True, key="provenance"):
        st.markdown(plain(provenance(run, batch, sample)))
    st.caption(
        f"Sample {sample.sample_id} · {requested_words(sample.requested_class)} · "
        f"{pixels.shape[1]} × {pixels.shape[0]} pixels, shown {factor} times as large · "
        f"pixels' SHA-256 {sample.sha256[:16]}…"
    )
    tags = store().tags_of([sample.sample_id]).get(sample.sample_id, [])
    if tags:
        st.html("".join(map(tag, tags)))
    for entry in store().tag_history(run.run_id, sample_id=sample.sample_id, limit=TAG_LINES):
        did = "given" if entry.added else "taken away"
        st.caption(plain(f"{entry.day:%Y-%m-%d}: tag “{entry.tag}” {did} by {entry.actor}"))
    labels = answers_about(sample.sample_id)
    st.markdown("**Labels:** " + (plain("; ".join(labels)) if labels else "none yet"))


AT_ONCE = 1000
GRID_HEIGHT = 640
SAMPLE_PARAMETER = "sample"
SMALLEST, LARGEST = 28, 96
"""Pixels of a sample on the grid, about."""
ALIKE = 18
PLAIN = {
    "faithful": "Neither guided nor filtered: as the critics taught it. Look for faults here.",
    "curated": (
        "Guided and filtered by the annotator, where the run has one: good to label, but faults "
        "are taken out."
    ),
    "strip": "A few samples of every round, from the same noise.",
}
MIXED = (
    "Batches of all kinds together: curated samples, from which faults are taken out, beside "
    "faithful ones and strips. The line below the grid names each one's kind."
)


@st.cache_data(max_entries=16, show_spinner=False)
def _sprite(digests: tuple[str, ...], _pngs: list[bytes]) -> images.Sprite:
    """The sprite of these samples, each of which its digest stands for."""
    return images.sprite(_pngs)


def name_of(sample: StoredSample) -> str:
    """What is said under the pointer."""
    return (
        f"Sample {sample.sample_id} · {sample.purpose} · "
        f"{requested_words(sample.requested_class)} · round {sample.round}"
    )


def _pick(sample_id: int) -> None:
    st.query_params[SAMPLE_PARAMETER] = str(sample_id)


def _picked(run: RunRecord) -> StoredSample | None:
    """The sample in the address, if it is one of this run's."""
    text = st.query_params.get(SAMPLE_PARAMETER, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        return None
    try:
        sample = store().sample(int(text))
    except StoreError:
        return None
    return next(iter(drop_damaged([sample])), None) if sample.run_id == run.run_id else None


def _page_of(
    wanted: SampleFilter, total: int, picked: StoredSample | None
) -> tuple[list[StoredSample], int]:
    """The samples of the page that is shown, in its order, and how much they are enlarged."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        offset = choose_page(total, AT_ONCE)
        stored = store().samples(wanted, offset=offset, limit=AT_ONCE)
        found = drop_damaged(stored)
        factor = choice("Size", _factors(found), lambda times: f"{times} ×", "size")
        order = choice("Order", list_orders(found, picked), lambda one: ORDERS[one], "order")
    within = " · ordered within this page" if total > AT_ONCE else ""
    st.caption(f"{offset + 1:,} to {offset + len(stored):,} of {total:,} samples{within}")
    return sort_samples(found, order, picked), factor


def _factors(shown: list[StoredSample]) -> list[int]:
    """Whole enlargements, the one to begin with first."""
    if not shown:
        return [1]
    width, height = size_of(shown[0].png)
    least = whole_factor(width, height, SMALLEST)
    fitting = [n * least for n in (1, 2, 3) if n * least * max(width, height) <= LARGEST]
    known = fitting or [least]
    return known[1:] + known[:1]


def _grid(
    run: RunRecord, shown: list[StoredSample], factor: int, picked: StoredSample | None
) -> None:
    sprite = _sprite(tuple(sample.sha256 for sample in shown), [sample.png for sample in shown])
    data = grid_data(
        sprite,
        [sample.sample_id for sample in shown],
        [name_of(sample) for sample in shown],
        selected=None if picked is None else picked.sample_id,
        factor=factor,
        turn=tagging.selection_turn(run.run_id),
    )
    choose = partial(tagging.store_selection, run.run_id)
    with st.container(height=GRID_HEIGHT, border=True):
        grid(data, key=f"grid-{run.run_id}", on_pick=_pick, on_choose=choose)


def _detail(run: RunRecord, shown: list[StoredSample], picked: StoredSample | None) -> None:
    st.markdown("#### Close up")
    if picked is None:
        st.info("Click a sample in the grid to enlarge it and to see its provenance.")
        return
    render_close_up(run, picked)
    st.markdown("#### More like this")
    near = find_alike(shown, picked, ALIKE)[1:]
    if near:
        pixels = images.sheet([one.png for one in near], 6, 1)
        factor = max(1, 300 // pixels.shape[1])
        images.render_image(
            pixels, factor=factor, alt=f"{len(near)} samples of this page most like it"
        )


def _kind(batch: StoredBatch | None) -> None:
    """What the batch is good for, beside what it is called."""
    if batch is None:
        st.warning(MIXED, icon=":material/layers:")
    else:
        kind = "good" if batch.purpose == "faithful" else "on"
        st.html(f'{tag(batch.purpose, kind)}<span class="quiet">{PLAIN[batch.purpose]}</span>')


def render() -> None:
    """Show the page."""
    st.title("Samples")
    with plain_errors():
        runs = all_runs()
        if not runs:
            st.info("**No samples yet.** Samples come from runs; the page *Runs* says how.")
            return
        run = pick_run(runs)
        privacy_warning(run)
        wanted = choose_samples(run)
        total = wanted.total()
        if total == 0:
            st.info(
                "No sample fits. A run stores a strip of samples every few rounds and a larger "
                "batch to work on at its end; or widen the filters."
            )
            return
        _kind(wanted.batch)
        picked = _picked(run)
        left, right = st.columns([2.8, 1], gap="large")
        with left:
            shown, factor = _page_of(wanted.filter, total, picked)
            if shown:
                _grid(run, shown, factor, picked)
            with st.expander("Map: alike samples lie together", on_change="rerun") as opened:
                if opened.open:
                    render_map(shown, f"map-{run.run_id}", _pick)
        with right:
            tagging.render_tagging(run, [one.sample_id for one in shown], picked)
            _detail(run, shown, picked)
            tagging.render_tag_history(run)


PAGE = DashboardPage("Samples", ":material/grid_view:", "samples", 30, render)
