"""Has every coordinate its noise? One at a time, in blocks of any size, and in stripes.

Over n releases the squares of a coordinate's noise add up to a chi-square variable of n degrees of
freedom, those of k coordinates to one of nk. Tested are every coordinate, every block of 2, 4, 8
and more neighbours, and every stripe: one of 2, 3, ..., 64 coordinates, from each first one on. Two
tests of Fisher put all coordinates' p-values together, for small faults that are scattered. The
least p-value counts times the number of tests, so that all of them together raise a false alarm as
rarely as a single one may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

MOST_STRIPES = 64
_LEAST_P = 1e-300

Sums = NDArray[np.float64]


@dataclass(frozen=True)
class NoisePlace:
    """Where in a release a variance was measured."""

    words: str
    """Such as ``coordinates 128 to 191``."""
    ratio: float
    """Measured standard deviation there over the claimed one."""


def two_sided(squares: Sums, freedom: int) -> Sums:
    """Chance of sums of squares as far from what ``freedom`` draws of N(0, 1) give, either way."""
    below, above = chi2.cdf(squares, freedom), chi2.sf(squares, freedom)
    both: Sums = np.minimum(1.0, 2 * np.minimum(below, above))
    return both


def coordinate_test(squares: Sums, releases: int) -> tuple[float, NoisePlace]:
    """The least likely variance of any place, allowing for how many places there are.

    Args:
        squares: float64 [d], of each coordinate over all releases, in units of the claim.
        releases: n, how many squares each of them is the sum of.

    Returns:
        The p-value of all places together, and the place.
    """
    least, tests, found = 1.0, 0, NoisePlace("all coordinates", 1.0)
    for sums, size, words in _places(squares):
        p_values = two_sided(sums, releases * size)
        tests += p_values.size
        at = int(p_values.argmin())
        if p_values[at] < least or found.words == "all coordinates":
            least = float(p_values[at])
            found = NoisePlace(
                words.format(*_ends(words, at, size)), _ratio(sums[at], releases * size)
            )
    for p in _together(squares, releases):
        tests += 1
        if p < least:
            least, found = p, NoisePlace("many coordinates", _ratio(squares.mean(), releases))
    return min(1.0, least * tests), found


def _places(squares: Sums) -> Iterator[tuple[Sums, int, str]]:
    """Sums of squares over places alike, how many coordinates each has, and what they are."""
    count, width = len(squares), 1
    while width <= count:
        blocks = squares[: count // width * width].reshape(-1, width).sum(axis=1)
        yield blocks, width, "coordinate {0}" if width == 1 else "coordinates {0} to {1}"
        width *= 2
    for step in range(2, min(MOST_STRIPES, count) + 1):
        rows = count // step
        stripes = squares[: rows * step].reshape(rows, step).sum(axis=0)
        yield stripes, rows, f"every one of {step} coordinates, from {{0}} on"


def _ends(words: str, at: int, size: int) -> tuple[int, int]:
    return (at, at) if "every one" in words else (at * size, (at + 1) * size - 1)


def _ratio(squares: float, freedom: int) -> float:
    return float(np.sqrt(squares / freedom))


def _together(squares: Sums, releases: int) -> Iterator[float]:
    """Fisher's tests: all coordinates too small, or too large, by a little."""
    for p_values in (chi2.cdf(squares, releases), chi2.sf(squares, releases)):
        score = -2 * float(np.log(np.maximum(p_values, _LEAST_P)).sum())
        yield float(chi2.sf(score, 2 * len(squares)))
