"""Samples: a run's synthetic samples as one grid; a click shows where one comes from."""

from __future__ import annotations

import math

import streamlit as st

from dashboard import images, sample_detail
from dashboard.badges import privacy_warning
from dashboard.components.grid import grid, grid_data
from dashboard.pages import DashboardPage
from dashboard.sample_filters import choose
from dashboard.session import pick_run, plain_errors, store
from server.store import RunRecord, SampleFilter, StoredSample, StoreError

AT_ONCE = 1000
GRID_HEIGHT = 640
SAMPLE_PARAMETER = "sample"
TILES = {"Small": 28, "Medium": 42, "Large": 64}


@st.cache_data(max_entries=16, show_spinner=False)
def _sprite(digests: tuple[str, ...], _pngs: list[bytes]) -> images.Sprite:
    """The sprite of these samples, each of which its digest stands for."""
    return images.sprite(_pngs)


def name_of(sample: StoredSample) -> str:
    """What is said under the pointer."""
    return (
        f"Sample {sample.sample_id} · requested class {sample.requested_class} · "
        f"round {sample.round}"
    )


def _page(total: int) -> int:
    """Offset of the page that is shown."""
    pages = max(1, math.ceil(total / AT_ONCE))
    if pages == 1:
        return 0
    number = st.number_input(f"Page (of {pages})", 1, pages, key=f"page-of-{pages}", width=160)
    return (int(number) - 1) * AT_ONCE


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
    return sample if sample.run_id == run.run_id else None


def _grid(run: RunRecord, wanted: SampleFilter, total: int, picked: StoredSample | None) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        size = st.segmented_control(
            "Size", list(TILES), default="Medium", required=True, key="tile_size"
        )
        offset = _page(total)
    found = store().samples(wanted, offset=offset, limit=AT_ONCE)
    ids = [sample.sample_id for sample in found]
    st.caption(f"{offset + 1:,} to {offset + len(found):,} of {total:,} samples")
    sprite = _sprite(tuple(sample.sha256 for sample in found), [sample.png for sample in found])
    data = grid_data(
        sprite,
        ids,
        [name_of(sample) for sample in found],
        selected=None if picked is None else picked.sample_id,
        tile=TILES[size or "Medium"],
    )
    with st.container(height=GRID_HEIGHT, border=True):
        grid(data, key=f"grid-{run.run_id}", on_pick=_pick)


def _detail(run: RunRecord, picked: StoredSample | None) -> None:
    st.markdown("#### Close up")
    if picked is None:
        st.info("Click a sample in the grid to enlarge it and to see its provenance.")
    else:
        sample_detail.show(run, picked)


def render() -> None:
    """Show the page."""
    st.title("Samples")
    with plain_errors():
        runs = store().runs()
        if not runs:
            st.info("**No samples yet.** Samples come from runs; the page *Runs* says how.")
            return
        run = pick_run(runs)
        privacy_warning(run)
        wanted = choose(run)
        total = store().count_samples(wanted)
        if total == 0:
            st.info(
                "No sample fits. A run stores a strip of samples every few rounds and a larger "
                "batch to work on at its end; or widen the filters."
            )
            return
        picked = _picked(run)
        left, right = st.columns([2.8, 1], gap="large")
        with left:
            _grid(run, wanted, total, picked)
        with right:
            _detail(run, picked)


PAGE = DashboardPage("Samples", ":material/grid_view:", "samples", 30, render)
