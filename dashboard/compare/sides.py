"""The two sides of a comparison: which batches, their samples, and runs that are their null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedlens.dashboard.access.session import store
from fedlens.dashboard.compare.statistics import Sets
from fedlens.dashboard.samples.batches import batch_identity, drop_damaged, rank_batches
from fedlens.store import RunRecord, SampleFilter, StoredBatch, StoredSample, decode_png

MOST = 2000
"""Samples of a batch that statistics are taken of."""
STRONGER = 3
"""How much stronger than it is a change is drawn, as the page says."""
FREE = ("seed",)
"""Settings in which two trainings of one null may differ."""


@dataclass(frozen=True)
class Side:
    """One batch of a run."""

    run: RunRecord
    batch: StoredBatch

    def wanted(self, class_: int | None = None) -> SampleFilter:
        """Its samples, of one class or all."""
        return SampleFilter(batch_id=self.batch.batch_id, requested_class=class_)

    def total(self, class_: int | None = None) -> int:
        """How many they are; a whole batch, which may be of a million, is not counted anew."""
        return self.batch.count if class_ is None else store().count_samples(self.wanted(class_))

    def planes(self) -> Sets:
        """Its images in grey by class, at most `MOST` in all."""
        return _planes(store().place, batch_identity(self.batch), self.batch)


@st.cache_data(max_entries=16, show_spinner=False)
def _planes(place: str, made_from: tuple[object, ...], _batch: StoredBatch) -> Sets:
    wanted = SampleFilter(batch_id=_batch.batch_id)
    return planes_of(drop_damaged(store().samples(wanted, limit=min(_batch.count, MOST))))


def planes_of(samples: list[StoredSample]) -> Sets:
    """Images in grey by class, brightness in [0, 1]."""
    by_class: dict[int, list[NDArray[np.float64]]] = {}
    for one in samples:
        by_class.setdefault(one.requested_class, []).append(decode_png(one.png).mean(0) / 255)
    return {number: np.stack(planes) for number, planes in sorted(by_class.items())}


def same_but_seed(one: RunRecord, other: RunRecord) -> bool:
    """Whether two runs differ in nothing but what chance decides."""
    return one.run_id != other.run_id and _fixed(one.config) == _fixed(other.config)


def _fixed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in FREE}


def null_of(side: Side, runs: list[RunRecord]) -> list[Side]:
    """The newest batches of the same kind of runs that differ from a side's in the seed alone."""
    found = []
    for run in runs:
        if same_but_seed(side.run, run):
            batches = [
                b for b in rank_batches(store().batches(run.run_id)) if _alike(b, side.batch)
            ]
            found += [Side(run, batches[0])] if batches else []
    return found


def _alike(one: StoredBatch, other: StoredBatch) -> bool:
    return one.purpose == other.purpose


def mean_pictures(one: Sets, other: Sets) -> NDArray[np.uint8]:
    """Means of A, of B and how B differs, a column a class; uint8 [3 h, classes * w, 3].

    In the third row blue is where B is brighter, orange where it is darker.
    """
    columns = []
    for number in sorted(set(one) & set(other)):
        a, b = one[number].mean(0), other[number].mean(0)
        columns.append(np.concatenate([_grey(a), _grey(b), _signed(b - a)], axis=0))
    return np.concatenate(columns, axis=1)


def _grey(plane: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.repeat((255 * plane).astype(np.uint8)[..., None], 3, axis=2)


def _signed(change: NDArray[np.float64]) -> NDArray[np.uint8]:
    strong = STRONGER * change
    up, down = np.clip(strong, 0, 1)[..., None], np.clip(-strong, 0, 1)[..., None]
    white = np.array([245.0, 246.0, 248.0])
    blue, orange = np.array([27.0, 95.0, 158.0]), np.array([190.0, 86.0, 16.0])
    return np.asarray(white + up * (blue - white) + down * (orange - white)).astype(np.uint8)
