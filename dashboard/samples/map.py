"""A map of a page of samples: alike ones lie together; a lasso's worth can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt
import streamlit as st

from fedlens.dashboard.samples.order import features
from fedlens.dashboard.widgets.tables import frame
from fedlens.store import StoredSample

HEIGHT = 420
MOST_CLASSES = 10


def map_chart(samples: Sequence[StoredSample]) -> alt.Chart:
    """The first two principal components of the pixels, coloured by requested class."""
    places = features(samples)
    rows = [
        {
            "x": float(place[0]),
            "y": float(place[1]),
            "class": str(one.requested_class),
            "sample": one.sample_id,
        }
        for one, place in zip(samples, places, strict=True)
    ]
    chosen = alt.selection_point(name="chosen", fields=["sample"])
    drawn: alt.Chart = (
        alt.Chart(frame(rows))
        .mark_circle(size=46)
        .encode(
            x=alt.X("x:Q", axis=None),
            y=alt.Y("y:Q", axis=None),
            color=alt.Color("class:N", scale=alt.Scale(scheme="tableau10"), title="Class"),
            opacity=alt.condition(chosen, alt.value(0.85), alt.value(0.25)),
            tooltip=[
                alt.Tooltip("sample:Q", title="Sample"),
                alt.Tooltip("class:N", title="Class"),
            ],
        )
        .add_params(chosen)
        .properties(height=HEIGHT)
    )
    return drawn


def render_map(samples: Sequence[StoredSample], key: str, on_pick: Callable[[int], None]) -> None:
    """Put the map on the page; ``on_pick`` is given the id of a point that was clicked."""
    if len(samples) < 3:
        return
    event = st.altair_chart(
        map_chart(samples),
        alt="Map of the samples of this page: alike ones lie together",
        on_select="rerun",
        selection_mode="chosen",
        key=key,
    )
    points = event["selection"].get("chosen", [])
    shown = {one.sample_id for one in samples}
    if points and points[0].get("sample") in shown:
        on_pick(int(points[0]["sample"]))
    st.caption("The first two principal components of the pixels. Click a point to see its sample.")
