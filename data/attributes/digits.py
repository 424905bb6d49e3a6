"""MNIST with a sensitive attribute: which digit it is, or how thick it was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.pictures import labelled_pictures
from fedlens.data.attributes.thickness import NORMAL, AnnotatedRule, stroke_widths
from fedlens.data.dataset import Dataset
from fedlens.data.registry import load
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split, split_in_two

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]
Make = Callable[[str, Part, Part], tuple[PrivateData, PrivateData]]

TRAIN_SHARE = 0.5
"""Share of the training images that filters are trained on; attackers have the rest."""


def digits(make: Make, data: str) -> Callable[[str, str, Path | None, int], Split]:
    """A loader of images in [-1, 1] with the two labels that ``make`` gives them.

    Args:
        make: turns the training and test images (uint8) with their digits into private data.
        data: ``mnist`` or ``embedded``.
    """

    def load_digits(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
        if argument:
            raise PrivateDataError(f"{name}: nothing may follow {name.partition(':')[0]}")
        found: Dataset = load(data, data_dir)
        known, test = make(
            name, (found.train_images, found.train_labels), (found.test_images, found.test_labels)
        )
        train, attack = split_in_two(known, TRAIN_SHARE, seed)
        return Split(train, attack, test)

    return load_digits


def greater_than_five(name: str, train: Part, test: Part) -> tuple[PrivateData, PrivateData]:
    """Utility: is the digit above 5 (as Mireshghallah et al. 2021). Sensitive: the digit."""
    first, second = (
        labelled_pictures(name, images, numbers > 5, numbers, (2, 10))
        for images, numbers in (train, test)
    )
    return first, second


def annotated(name: str, train: Part, test: Part) -> tuple[PrivateData, PrivateData]:
    """Utility: the digit. Sensitive: thin (0) or thick (1) by the annotated-MNIST rule.

    Normal digits are dropped. Both parts are measured by the training images' mean widths: with
    means of its own for each part, as Jafarzadeh Asl et al. 2023 have it, thick is another thing in
    the test images, and an attacker of a filter is scored by a rule that it has not learned.
    """
    rule = AnnotatedRule.fit(*train)
    parts = []
    for images, numbers in (train, test):
        widths = rule.label(images > 0, numbers)
        kept = widths != NORMAL
        parts.append(labelled_pictures(name, images[kept], numbers[kept], widths[kept], (10, 2)))
    return parts[0], parts[1]


def thickness(name: str, train: Part, test: Part) -> tuple[PrivateData, PrivateData]:
    """Utility: the digit. Sensitive: strokes at most as wide as (0), or wider than, the median (1).

    The median is each digit's own in the test images, as a federation's rule has it
    (:mod:`fedlens.data.sensitive`): a filter that a run trained is attacked by the rule that it was
    trained by. The digit says next to nothing of the sensitive attribute, and to hide the second
    need not cost the first.
    """
    widths = [stroke_widths(images) for images, _ in (train, test)]
    middles = np.array([_median(widths[1][test[1] == digit]) for digit in range(10)])
    first, second = (
        labelled_pictures(name, images, numbers, width > middles[numbers], (10, 2))
        for (images, numbers), width in zip((train, test), widths, strict=True)
    )
    return first, second


def _median(widths: NDArray[np.float64]) -> float:
    return float(np.median(widths)) if len(widths) else 0.0


MNIST_GREATER5 = DatasetSpec("MNIST, above 5", private=digits(greater_than_five, "mnist"))
AMNIST = DatasetSpec("Annotated MNIST", private=digits(annotated, "mnist"), formula="ink")
MNIST_THICKNESS = DatasetSpec(
    "MNIST, thickness", private=digits(thickness, "mnist"), formula="strokes"
)
EMBEDDED_GREATER5 = DatasetSpec(
    "Embedded digits, above 5", private=digits(greater_than_five, "embedded")
)
EMBEDDED_AMNIST = DatasetSpec(
    "Embedded digits, annotated", private=digits(annotated, "embedded"), formula="ink"
)
EMBEDDED_THICKNESS = DatasetSpec(
    "Embedded digits, thickness", private=digits(thickness, "embedded"), formula="strokes"
)
