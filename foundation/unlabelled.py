"""Data that nobody labelled: what such records, and samples of them, are called."""

from __future__ import annotations

UNLABELLED = "unlabelled"


def requested_words(number: int | None) -> str:
    """What a sample was requested for, in words: ``requested class 3``, or ``unlabelled``."""
    return UNLABELLED if number is None else f"requested class {number}"
