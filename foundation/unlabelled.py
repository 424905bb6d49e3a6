"""Data that nobody labelled, or only in part: what such records and their samples are called."""

from __future__ import annotations

from collections.abc import Sequence

from fedlens.foundation.names import call_class

UNLABELLED = "unlabelled"
OWN, NONE, BY_MODEL = "own", "none", "model:"
"""Where records' labels come from: theirs, nowhere, or a label model that is named behind it."""
OWN_OR = "own-or-"
"""Before `NONE` or `BY_MODEL`: that is for records without a label of their own."""
PARTLY = OWN_OR + NONE
NO_CLASS = -1
"""Label of a record without one, where others have some: a class that no schema has, so that tasks
that ask for a class pass the record over."""


_MARKS = (UNLABELLED, "unlabeled")


def is_mark(label: str) -> bool:
    """Whether what stands as a record's label (a folder, a cell) says that it has none."""
    return label.strip().casefold() in _MARKS


def label_model_in(labels: str) -> str:
    """What stands behind ``model:``; empty where labels come from elsewhere."""
    rest = labels.removeprefix(OWN_OR)
    return rest.removeprefix(BY_MODEL) if rest.startswith(BY_MODEL) else ""


def reads_own_labels(labels: str) -> bool:
    """Whether a record's own label counts where it has one."""
    return labels == OWN or labels.startswith(OWN_OR)


def requested_words(number: int | None, names: Sequence[str] = ()) -> str:
    """What a sample was requested for, in words: ``requested class 3``, or ``unlabelled``.

    Args:
        number: of the class; None where there is none.
        names: what people call the classes; empty where they have numbers alone.
    """
    return UNLABELLED if number is None else f"requested {call_class(number, names)}"
