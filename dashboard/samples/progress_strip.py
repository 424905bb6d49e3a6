"""The strip: the same noise through each round's generator, to watch the samples form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from fedlens.dashboard.access.session import store
from fedlens.dashboard.samples import images
from fedlens.dashboard.samples.batches import drop_damaged
from fedlens.store import RunRecord, SampleFilter, StoredBatch, StoredSample

GAP = 1
WIDEST = 760
MOST = 400
PLAIN_COLUMNS = 16


def arrange_strip(samples: Sequence[StoredSample]) -> tuple[list[StoredSample], int]:
    """Samples in drawing order, and in how many columns: one a class where that comes out even.

    Args:
        samples: of one batch.
    """
    classes = sorted({one.requested_class for one in samples if one.requested_class is not None})
    by_class = {c: [s for s in samples if s.requested_class == c] for c in classes}
    if len({len(members) for members in by_class.values()}) != 1 or len(classes) == 1:
        return sorted(samples, key=lambda s: (s.requested_class or 0, s.position)), PLAIN_COLUMNS
    return [s for line in zip(*by_class.values(), strict=True) for s in line], len(classes)


def render_strip(run: RunRecord, batches: Sequence[StoredBatch]) -> None:
    """A round slider and that round's strip."""
    st.markdown("#### Samples by round")
    strips = {batch.round: batch for batch in batches if batch.purpose == "strip"}
    if not strips:
        later = f"No samples yet; round {run.rounds_planned} draws some at the latest."
        st.info(later if run.status == "running" else "This run drew no samples.")
        return
    rounds = sorted(strips)
    chosen = rounds[0]
    if len(rounds) > 1:
        chosen = _slider(f"strip-{run.run_id}", rounds)
    _draw(strips[chosen])


def _slider(key: str, rounds: Sequence[int]) -> int:
    """A slider that stays with the newest round while it stands there, and else where it is."""
    newest = f"{key}-newest"
    if st.session_state.get(key) in (None, st.session_state.get(newest)):
        st.session_state[key] = rounds[-1]
    st.session_state[newest] = rounds[-1]
    return int(st.select_slider("Round", rounds, key=key))


def _draw(batch: StoredBatch) -> None:
    found = drop_damaged(store().samples(SampleFilter(batch_id=batch.batch_id), limit=MOST))
    if not found:
        return
    ordered, columns = arrange_strip(found)
    pixels = images.sheet([sample.png for sample in ordered], columns, GAP)
    by_class = columns != PLAIN_COLUMNS
    images.render_image(
        pixels,
        factor=max(1, math.floor(WIDEST / pixels.shape[1])),
        alt=f"{len(ordered)} synthetic samples drawn after round {batch.round}",
    )
    st.caption(
        f"{batch.provenance} · round {batch.round} · "
        + ("one column a requested class · " if by_class else "")
        + "the same noise in every round"
    )
