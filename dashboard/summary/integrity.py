"""Samples whose picture in the store is no longer the one that was drawn: named, and not shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import streamlit as st

from fedlens.store import StoredSample, StoreError, decode_png, pixel_digest

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
    return _is_intact(sample.png, sample.sha256)


@lru_cache(maxsize=4096)
def _is_intact(png: bytes, sha256: str) -> bool:
    try:
        return pixel_digest(decode_png(png)) == sha256
    except StoreError:
        return False
