"""In what order a page of samples stands, and where they lie on a map of what they look like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedlens.dashboard.compare.features import components, find_nearest, oddness, pixels
from fedlens.store import StoredSample

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
    odd = oddness(features(samples), [one.requested_class for one in samples])
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
