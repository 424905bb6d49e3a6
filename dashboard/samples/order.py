"""In what order a page of samples stands, and where they lie on a map of what they look like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import altair as alt
import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedlens.dashboard.widgets.display import frame
from fedlens.foundation.unlabelled import UNLABELLED
from fedlens.store import StoredSample, decode_png

HEIGHT = 420
MOST_CLASSES = 10


def map_chart(samples: Sequence[StoredSample]) -> alt.Chart:
    """The first two principal components of the pixels, coloured by requested class."""
    places = features(samples)
    rows = [
        {
            "x": float(place[0]),
            "y": float(place[1]),
            "class": UNLABELLED if one.requested_class is None else str(one.requested_class),
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


Matrix: TypeAlias = NDArray[np.float64]
COMPONENTS = 24
NEIGHBOURS = 5


def pixels(pngs: Sequence[bytes]) -> Matrix:
    """Brightness in [0, 1] of equally large images, float64 [n, channels * height * width]."""
    return np.stack([decode_png(png).reshape(-1) for png in pngs]) / 255.0


def components(flat: Matrix, count: int = COMPONENTS) -> Matrix:
    """The first principal components, [n, at most ``count``]; the same sign on every machine."""
    centred = flat - flat.mean(0)
    if len(flat) < 2:
        return np.zeros((len(flat), 2))
    values, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, np.argsort(-values)[: max(2, count)]]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    return np.asarray(centred @ (axes * np.where(signs == 0, 1, signs)))


def pairwise_distances(one: Matrix, other: Matrix) -> Matrix:
    """Euclidean distances, [len(one), len(other)]."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def oddness(features: Matrix, classes: Sequence[int]) -> NDArray[np.float64]:
    """How far each sample is from the nearest ones of its class, [n]; 0 where it has none."""
    found = np.zeros(len(features))
    labels = np.asarray(classes)
    for number in np.unique(labels):
        own = np.flatnonzero(labels == number)
        near = np.sort(pairwise_distances(features[own], features[own]), axis=1)[
            :, 1 : NEIGHBOURS + 1
        ]
        found[own] = near.mean(1) if near.shape[1] else 0.0
    return found


def find_nearest(features: Matrix, place: int, count: int) -> list[int]:
    """Places of the samples most like one, itself first."""
    far = pairwise_distances(features[place : place + 1], features)[0]
    far[place] = -1.0
    return [int(i) for i in np.argsort(far, kind="stable")[:count]]


STORED, ODD, COMMON, LEAST, LIKE = "stored", "oddest", "commonest", "doubtful", "alike"
ORDERS = {
    STORED: "As stored",
    ODD: "Oddest first",
    COMMON: "Most ordinary first",
    LEAST: "Least agreed first",
    LIKE: "Most like the chosen one",
}


def list_orders(samples: Sequence[StoredSample], picked: StoredSample | None) -> list[str]:
    """The orders that make sense here."""
    known = [STORED, ODD, COMMON]
    known += [LEAST] if any(agreement(one) is not None for one in samples) else []
    return [*known, LIKE] if picked is not None else known


def agreement(sample: StoredSample) -> float | None:
    """The annotator's probability of the requested class, where the store has one."""
    return getattr(sample, "agreement", None)


def sort_samples(
    samples: Sequence[StoredSample], order: str, picked: StoredSample | None
) -> list[StoredSample]:
    """A page of samples in an order."""
    if order == STORED or len(samples) < 2:
        return list(samples)
    if order == LEAST:
        return sorted(samples, key=lambda one: (agreement(one) is None, agreement(one) or 0.0))
    if order == LIKE and picked is not None:
        return find_alike(samples, picked, len(samples))
    odd = oddness(features(samples), [one.requested_class or 0 for one in samples])
    return [samples[i] for i in np.argsort(odd if order == COMMON else -odd, kind="stable")]


def find_alike(
    samples: Sequence[StoredSample], picked: StoredSample, count: int
) -> list[StoredSample]:
    """The samples of a page that look most like one, which itself stands first."""
    others = [one for one in samples if one.sample_id != picked.sample_id]
    everyone = [picked, *others]
    return [everyone[i] for i in find_nearest(features(everyone), 0, count)]


def features(samples: Sequence[StoredSample]) -> NDArray[np.float64]:
    """Principal components of the samples' pixels, [n, components]."""
    return _features(tuple(one.sha256 for one in samples), [one.png for one in samples])


@st.cache_data(max_entries=8, show_spinner=False)
def _features(digests: tuple[str, ...], _pngs: list[bytes]) -> NDArray[np.float64]:
    return components(pixels(_pngs))
