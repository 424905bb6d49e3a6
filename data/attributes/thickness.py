"""How thick a handwritten digit is: the annotated-MNIST rule, and strokes by distance transform.

The annotated-MNIST rule (Kim 2017, used by Jafarzadeh Asl et al. 2023, section IV-C) counts the ink
of one row that depends on the digit, so it measures how often strokes cross that row as well as how
thick they are. The distance transform measures thickness alone, and is the better sensitive
attribute where no published figure is to be met.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

THIN, NORMAL, THICK = 0, 2, 1
"""Answers of the rule; the sensitive attribute keeps 0 and 1 alone."""

ROWS = (14, 20, 11, 18, 10, 20, 7, 22, 10, 22)
"""The row, of 28, in which the ink of each digit 0..9 is counted."""
TOLERANCES = (2, 1, 2, 2, 2, 6, 2, 0, 2, 0)
"""By how many pixels in all a normal width may differ from the digit's mean."""

CHUNK = 2000
FAR = 1e4
"""Pixels between one image and the next, so that none is measured to another's background."""
INK = 128
"""A pixel from here on belongs to a stroke, of 0..255."""


@dataclass(frozen=True)
class AnnotatedRule:
    """The rule with the mean widths of one set of images.

    With m a digit's mean width rounded down and r its tolerance, a width below ``int(m - r / 2)``
    is thin, above ``int(m + r / 2)`` thick, and normal otherwise. Fitted to each of MNIST's two
    parts it keeps exactly 28,568 training and 4,681 test images as thick or thin, as in the paper.

    Attributes:
        means: mean width of each digit, rounded down, in pixels.
    """

    means: tuple[int, ...]

    @classmethod
    def fit(cls, images: Images, digits: Labels) -> AnnotatedRule:
        """The rule with the means of ``images``, uint8 [n, 1, 28, 28], of ``digits`` int64 [n].

        A digit that does not occur has mean 0, so it can only be normal or thick.
        """
        widths = row_widths(images > 0, digits)
        found = (widths[digits == digit] for digit in range(10))
        return cls(tuple(int(one.mean()) if len(one) else 0 for one in found))

    def label(self, ink: NDArray[np.bool_], digits: Labels) -> Labels:
        """THIN, NORMAL or THICK, int64 [n], of images as ink [n, 1, 28, 28]."""
        widths = row_widths(ink, digits)
        low, high = (self._limits(sign)[digits] for sign in (-1, 1))
        return np.where(widths < low, THIN, np.where(widths > high, THICK, NORMAL))

    def _limits(self, sign: int) -> Labels:
        pairs = zip(self.means, TOLERANCES, strict=True)
        return np.array([int(mean + sign * spread / 2) for mean, spread in pairs], np.int64)


def row_widths(ink: NDArray[np.bool_], digits: Labels) -> Labels:
    """Pixels of ink, int64 [n], in the row that each digit is measured in."""
    rows = np.array(ROWS)[digits]
    counted: Labels = ink[np.arange(len(ink)), 0, rows].sum(1).astype(np.int64)
    return counted


def stroke_widths(images: Images) -> NDArray[np.float64]:
    """Mean width of the strokes of each image [n, 1, h, w], in pixels, float64 [n]; 0 without ink.

    Twice the mean distance to the background over the strokes' ridge: the pixels of ink whose
    distance is the greatest among their eight neighbours.
    """
    parts = [images[start : start + CHUNK, 0] for start in range(0, len(images), CHUNK)]
    return np.concatenate(
        [_widths(np.pad(part >= INK, ((0, 0), (1, 1), (1, 1)))) for part in parts]
    )


def _widths(ink: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Of images [n, h, w] with a margin; one transform for all, in which images are far apart."""
    distances = ndimage.distance_transform_edt(ink, sampling=(FAR, 1, 1))
    ridge = ink & (distances >= ndimage.maximum_filter(distances, size=(1, 3, 3)))
    count = np.maximum(ridge.sum((1, 2)), 1)
    widths: NDArray[np.float64] = 2 * (distances * ridge).sum((1, 2)) / count
    return widths
