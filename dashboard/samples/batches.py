"""Batches and their samples: which is opened first, which samples are intact, examples of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedlens.dashboard.samples.images import base64_text
from fedlens.diagnosis.stored_answers import SAMPLES_EACH
from fedlens.store import (
    SampleFilter,
    Store,
    StoredBatch,
    StoredSample,
    StoreError,
    decode_png,
    pixel_digest,
)

MOST_CLASSES, UNLABELLED_EXAMPLES = 40, 10


def load_examples(store: Store, run_id: str, classes: Sequence[int]) -> list[dict[str, str | int]]:
    """A few samples of the batch that is most like the users' data, the classes in turn.

    Each is ``png`` in base64 and its ``label``; none where the run has no samples yet. Unlabelled
    samples are all given the label 0.
    """
    batches = rank_batches(store.batches(run_id))
    if not batches:
        return []
    each = SAMPLES_EACH if classes else UNLABELLED_EXAMPLES
    found = [
        store.samples(SampleFilter(batch_id=batches[0].batch_id, requested_class=one), limit=each)
        for one in classes[:MOST_CLASSES] or (None,)
    ]
    return [
        {"png": base64_text(one[turn].png), "label": one[turn].requested_class or 0}
        for turn in range(each)
        for one in found
        if turn < len(one)
    ]


NAMED = 5


def drop_damaged(samples: Sequence[StoredSample]) -> list[StoredSample]:
    """Those whose pixels are the ones that were drawn; the page says which others there are.

    One damaged picture must not take a page of good ones away, nor pass for what was drawn.
    """
    good = [one for one in samples if is_intact(one)]
    if len(good) < len(samples):
        there = {one.sample_id for one in good}
        bad = [str(one.sample_id) for one in samples if one.sample_id not in there]
        more = ", …" if len(bad) > NAMED else ""
        st.warning(
            f"Damaged in the store and not shown: {len(bad):,} samples (no. "
            f"{', '.join(bad[:NAMED])}{more}). Their pictures are not what was drawn.",
            icon=":material/broken_image:",
        )
    return good


def is_intact(sample: StoredSample) -> bool:
    """Whether a sample's pixels are the ones that were drawn."""
    return intact_pixels(sample) is not None


def intact_pixels(sample: StoredSample) -> NDArray[np.uint8] | None:
    """A sample's pixels, uint8 [channels, height, width]; None where others were drawn."""
    return _intact_pixels(sample.png, sample.sha256)


@lru_cache(maxsize=4096)
def _intact_pixels(png: bytes, sha256: str) -> NDArray[np.uint8] | None:
    try:
        pixels = decode_png(png)
    except StoreError:
        return None
    return pixels if pixel_digest(pixels) == sha256 else None


KINDS: dict[str, tuple[int, str]] = {
    "faithful": (0, "faithful, to look for faults in"),
    "curated": (1, "curated, to label and teach with"),
    "strip": (2, "progress samples"),
}
"""For each kind of batch its rank and its words: the samples most like users' data stand first."""


def rank_batches(batches: list[StoredBatch]) -> list[StoredBatch]:
    """Batches with the one to open first: by kind, then the newest."""
    return sorted(batches, key=lambda one: (KINDS[one.purpose][0], -one.round, -one.batch_id))


def batch_identity(batch: StoredBatch) -> tuple[object, ...]:
    """What tells a batch from each other one, also of a store that took this one's place."""
    key = (batch.run_id, batch.round, batch.purpose, batch.seed)
    return (batch.batch_id, *key, batch.count, batch.checkpoint_sha256)
