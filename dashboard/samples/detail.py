"""One sample close up, with where it comes from and what people said about it."""

from __future__ import annotations

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedlens.dashboard.access.session import store
from fedlens.dashboard.samples import images
from fedlens.dashboard.summary.badges import provenance
from fedlens.dashboard.summary.privacy import NOT_PRIVATE
from fedlens.dashboard.widgets.plain_text import plain
from fedlens.dashboard.widgets.theme import tag
from fedlens.store import RunRecord, StoredSample, decode_png

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
        alt=f"Synthetic sample {sample.sample_id}, requested class {sample.requested_class}",
    )
    if not batch.private:
        st.badge(NOT_PRIVATE, color="red", icon=":material/warning:")
    with st.container(border=True, key="provenance"):
        st.markdown(plain(provenance(run, batch, sample)))
    st.caption(
        f"Sample {sample.sample_id} · requested class {sample.requested_class} · "
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
