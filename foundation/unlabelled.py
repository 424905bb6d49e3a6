"""Data that nobody labelled: what such records, and samples of them, are called."""

from __future__ import annotations

UNLABELLED = "unlabelled"
OWN, NONE, BY_MODEL = "own", "none", "model:"
"""Where records' labels come from: theirs, nowhere, or a label model that is named behind it."""


def label_model_in(labels: str) -> str:
    """What stands behind ``model:``; empty where labels come from elsewhere."""
    return labels.removeprefix(BY_MODEL) if labels.startswith(BY_MODEL) else ""


def requested_words(number: int | None) -> str:
    """What a sample was requested for, in words: ``requested class 3``, or ``unlabelled``."""
    return UNLABELLED if number is None else f"requested class {number}"
