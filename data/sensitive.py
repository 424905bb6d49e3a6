"""Sensitive attributes of simulated users: one name, one rule that gives every image's value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlens.data.dataset import Dataset, DatasetError, Labels

MOST_SENSITIVE = 100
"""More classes than that are a mistake rather than an attribute; they would size the networks."""


@dataclass(frozen=True, eq=False)
class SensitiveValues:
    """The sensitive attribute of every image of a data set.

    Attributes:
        name: the rule's.
        train: int64 [n], in [0, classes).
        test: int64 [m].
        classes: at least 2, each with at least one training image.
    """

    name: str
    train: Labels
    test: Labels
    classes: int


def sensitive_values_of(dataset: Dataset, name: str) -> SensitiveValues:
    """The sensitive attribute ``name`` of a data set's images.

    Raises:
        DatasetError: there is no such attribute, the data lacks it, or it has one class only.
    """
    if name not in SENSITIVE:
        raise DatasetError(
            f"there is no sensitive attribute {name!r}; use one of {', '.join(SENSITIVE)}"
        )
    train, test = SENSITIVE[name](dataset)
    classes = int(max(train.max(), test.max())) + 1
    if classes > MOST_SENSITIVE:
        raise DatasetError(
            f"{dataset.name}: the attribute {name!r} runs up to {classes - 1}; number its "
            f"classes from 0 (at most {MOST_SENSITIVE})"
        )
    missing = np.flatnonzero(np.bincount(train, minlength=classes) == 0)
    if classes < 2 or len(missing):
        why = "has one class only" if classes < 2 else f"lacks class {int(missing[0])}"
        raise DatasetError(
            f"{dataset.name}: the sensitive attribute {name!r} {why}, so there is nothing to hide; "
            "choose another attribute or number the classes that occur from 0"
        )
    return SensitiveValues(name, train, test, classes)


def _column(dataset: Dataset) -> tuple[Labels, Labels]:
    """The data set's own column."""
    if dataset.train_sensitive is None or dataset.test_sensitive is None:
        raise DatasetError(
            f"{dataset.name} has no sensitive column; give train_sensitive and test_sensitive in "
            "an .npz file, or choose another attribute"
        )
    return dataset.train_sensitive, dataset.test_sensitive


def _thickness(dataset: Dataset) -> tuple[Labels, Labels]:
    """Strokes at most as wide as (0), or wider than (1), the median of their class.

    The medians are those of the test images, class by class, so that the class says next to nothing
    of the width. No user holds a test image: were they the users' own, one user could change
    another user's value.
    """
    from fedlens.data.attributes.thickness import stroke_widths

    if dataset.shape[0] != 1:
        raise DatasetError(
            f"{dataset.name} has {dataset.shape[0]} channels; 'thickness' is of strokes in grey "
            "images: choose another sensitive attribute"
        )
    widths = stroke_widths(dataset.test_images)
    own = [widths[dataset.test_labels == label] for label in range(dataset.classes)]
    middles = np.array([np.median(width) if len(width) else 0.0 for width in own])
    return (
        (stroke_widths(dataset.train_images) > middles[dataset.train_labels]).astype(np.int64),
        (widths > middles[dataset.test_labels]).astype(np.int64),
    )


SENSITIVE: dict[str, Callable[[Dataset], tuple[Labels, Labels]]] = {
    "thickness": _thickness,
    "column": _column,
}
"""Rules by name; a new one is a function and one line here."""
