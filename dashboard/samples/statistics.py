"""How two sets of samples differ, class by class, and what chance of training would do alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Planes = NDArray[np.float64]
"""Brightness in [0, 1], [n, height, width]."""
_EPS = 1e-9
EDGE = 2


def brightness(planes: Planes) -> NDArray[np.float64]:
    """Mean brightness of each image."""
    return np.asarray(planes.mean((1, 2)))


def bright_border(planes: Planes) -> NDArray[np.float64]:
    """How much brighter the border is than the whole: above 0 where an image is inverted."""
    inner = planes[:, EDGE:-EDGE, EDGE:-EDGE]
    whole, area = planes.sum((1, 2)), planes[0].size - inner[0].size
    return np.asarray((whole - inner.sum((1, 2))) / area - planes.mean((1, 2)))


def lying(planes: Planes) -> NDArray[np.float64]:
    """1 where an image's ink extends further across than up: a turn by 90 degrees exchanges it."""
    y, x, mass = _centred(planes)
    return np.asarray(((planes * x**2).sum((1, 2)) > (planes * y**2).sum((1, 2))) & (mass > _EPS))


def lean(planes: Planes) -> NDArray[np.float64]:
    """Correlation of across and up: a mirror changes its sign."""
    y, x, _ = _centred(planes)
    both = (planes * x * y).sum((1, 2))
    size = np.sqrt((planes * x**2).sum((1, 2)) * (planes * y**2).sum((1, 2)))
    return np.asarray(both / np.maximum(size, _EPS))


def across(planes: Planes) -> NDArray[np.float64]:
    """Where the ink is from left (0) to right (1)."""
    place = np.linspace(0, 1, planes.shape[2])
    return np.asarray((planes.sum(1) * place).sum(1) / np.maximum(planes.sum((1, 2)), _EPS))


def down(planes: Planes) -> NDArray[np.float64]:
    """Where the ink is from top (0) to bottom (1)."""
    return across(planes.swapaxes(1, 2))


def sharpness(planes: Planes) -> NDArray[np.float64]:
    """Mean change from a pixel to the next: small where an image is blurred or dim."""
    return np.asarray(
        np.abs(np.diff(planes, axis=1)).mean((1, 2)) + np.abs(np.diff(planes, axis=2)).mean((1, 2))
    )


def _centred(planes: Planes) -> tuple[Planes, Planes, NDArray[np.float64]]:
    mass = planes.sum((1, 2))
    rows, columns = np.arange(planes.shape[1]), np.arange(planes.shape[2])
    divisor = np.maximum(mass, _EPS)
    y = (planes.sum(2) @ rows / divisor)[:, None, None]
    x = (planes.sum(1) @ columns / divisor)[:, None, None]
    return rows[None, :, None] - y, columns[None, None, :] - x, mass


MEASURES: Mapping[str, Callable[[Planes], NDArray[np.float64]]] = {
    "brightness": brightness,
    "border brighter than the whole": bright_border,
    "horizontal strokes": lying,
    "lean": lean,
    "ink from left to right": across,
    "ink from top to bottom": down,
    "sharpness": sharpness,
}


@dataclass(frozen=True)
class Difference:
    """One measure of two sets of samples, averaged over the classes that both have."""

    measure: str
    one: float
    other: float
    error: float
    """Standard error of the difference from the number of samples alone."""
    between_seeds: float | None
    """Standard deviation between trainings that differ in nothing but the seed; None without."""

    @property
    def change(self) -> float:
        """How much larger the other one is."""
        return self.other - self.one

    @property
    def deviations(self) -> float | None:
        """The change in standard deviations of its null; None where no null is known."""
        if self.between_seeds is None:
            return None
        return self.change / max(_EPS, math.hypot(self.error, math.sqrt(2) * self.between_seeds))


Sets = Mapping[int, Planes]
"""Images by class."""


def differences(one: Sets, other: Sets, null: Sequence[Sets] = ()) -> list[Difference]:
    """All measures of two sets, the largest change over its error first.

    Args:
        one: images by class.
        other: images by class.
        null: further sets whose trainings differ from one of them in the seed alone; with that
            one they say what chance does.
    """
    shared = sorted(set(one) & set(other))
    found = []
    for name, measure in MEASURES.items() if shared else ():
        first, error = _level(one, shared, measure)
        second, error_2 = _level(other, shared, measure)
        levels = [_level(each, shared, measure)[0] for each in null if set(shared) <= set(each)]
        spread = float(np.std([first, *levels], ddof=1)) if levels else None
        found.append(Difference(name, first, second, math.hypot(error, error_2), spread))
    return sorted(found, key=lambda each: -abs(each.change) / max(_EPS, each.error))


def _level(
    images: Sets, classes: Sequence[int], measure: Callable[[Planes], NDArray[np.float64]]
) -> tuple[float, float]:
    """Mean over classes of the class's mean, with its standard error."""
    values = [measure(images[number]).astype(float) for number in classes]
    means = [float(each.mean()) for each in values]
    variances = [float(each.var(ddof=1)) / len(each) if len(each) > 1 else 0.0 for each in values]
    return float(np.mean(means)), math.sqrt(sum(variances)) / len(classes)
