"""Is the noise what the ledger says: Gaussian, of that variance, drawn afresh each time?

The mechanism runs on no data, so that what it releases is its noise. Under the claim the values,
divided by the claimed standard deviation, are independent draws of N(0, 1), which makes the tests
exact (the Kolmogorov-Smirnov one conservative, since the scale is estimated). `coordinates` looks
at places in a release; here are the tests of all values together and of releases against others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import chi2, kstwobign, norm
from scipy.stats import t as student

from fedlens.foundation.errors import WrongUse

# Has every coordinate its noise? One at a time, in blocks of any size, and in stripes.
#
# Over n releases the squares of a coordinate's noise add up to a chi-square variable of n degrees
# of freedom, those of k coordinates to one of nk. Tested are every coordinate, every block of 2,
# 4, 8 and more neighbours, and every stripe: one of 2, 3, ..., 64 coordinates, from each first
# one on. Two tests of Fisher put all coordinates' p-values together, for small faults that are
# scattered. The least p-value counts times the number of tests, so that all of them together
# raise a false alarm as rarely as a single one may.

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


Values = NDArray[np.float64]

DOUBLE, SINGLE = 2.0**-53, 2.0**-24
"""Relative resolution of float64 and float32: values as near as that coincide."""
PITCH = 2.0**-36
"""Spacing, over the claimed deviation, of a lattice that noise may lie on: a finer one is as good.
"""
_SPARE_REPEATS = 10


@dataclass(frozen=True)
class NoiseTest:
    """What the tests say; each p-value is the chance of as much under the claim."""

    count: int
    """Values tested."""
    ratio: float
    """Measured standard deviation over the claimed one."""
    interval: tuple[float, float]
    """Exact confidence interval of that ratio."""
    p_variance: float
    """Two-sided chi-square test of the variance."""
    p_mean: float
    """Two-sided test of the mean."""
    p_shape: float
    """Kolmogorov-Smirnov test of the shape, after scaling to the measured variance."""
    p_releases: float
    """Variance of one release, allowing for how many there are."""
    p_coordinates: float
    """Variance of one coordinate, block or stripe of coordinates over all releases, allowing for
    how many were looked at."""
    p_rounds: float
    """Largest correlation between two releases, allowing for the number of pairs."""
    p_neighbours: float
    """Correlation between a value and the next of its release."""
    repeats: int
    """Values that another one equals, anywhere."""
    most_repeats: int
    """As many or more never come about by chance."""
    place: NoisePlace
    """Where the variance over all releases is least likely."""


def noise_test(
    values: Values, *, confidence: float = 0.95, resolution: float = DOUBLE
) -> NoiseTest:
    """Test the noise of several releases.

    Args:
        values: float64 [releases, d], each divided by the deviation of the claim. Releases of
            separate lives of the mechanism belong in one array: nothing may repeat between them.
        confidence: of the interval.
        resolution: of the values as they left the mechanism, `DOUBLE` or `SINGLE`.

    Raises:
        WrongUse: fewer than two releases, or values that are not finite.
    """
    if values.ndim != 2 or min(values.shape) < 2 or not np.isfinite(values).all():
        raise WrongUse(f"values of shape {values.shape}: give finite ones, [2 or more, d ≥ 2]")
    count, squares = values.size, values**2
    whole, tail = float(squares.sum()), (1 - confidence) / 2
    p_coordinates, place = coordinate_test(squares.sum(axis=0), len(values))
    return NoiseTest(
        count=count,
        ratio=math.sqrt(whole / count),
        interval=(
            math.sqrt(whole / float(chi2.isf(tail, count))),
            math.sqrt(whole / float(chi2.ppf(tail, count))),
        ),
        p_variance=float(two_sided(np.array([whole]), count)[0]),
        p_mean=2 * float(norm.sf(abs(float(values.sum())) / math.sqrt(count))),
        p_shape=_shape(values, whole),
        p_releases=_least(two_sided(squares.sum(axis=1), values.shape[1])),
        p_coordinates=p_coordinates,
        p_rounds=between_releases(values),
        p_neighbours=_neighbours(values),
        repeats=count - len(np.unique(values)),
        most_repeats=_SPARE_REPEATS + math.ceil(2 * _coincidences(count, resolution)),
        place=place,
    )


def _least(p_values: Values) -> float:
    return min(1.0, float(p_values.min()) * p_values.size)


def _coincidences(count: int, resolution: float) -> float:
    """Pairs of Gaussian values that round to the same number, on average.

    n²/2 ∫ φ(x)² |x| 2u dx for floating point of resolution u, and n²/2 ∫ φ(x)² h dx for a lattice
    of spacing h.
    """
    return count**2 / 2 * (resolution / math.pi + PITCH / (2 * math.sqrt(math.pi)))


def _shape(values: Values, squares: float) -> float:
    if squares == 0:
        return 0.0
    ordered = np.sort(values, axis=None) / math.sqrt(squares / values.size)
    expected, steps = ndtr(ordered), np.arange(values.size + 1) / values.size
    distance = max(float((steps[1:] - expected).max()), float((expected - steps[:-1]).max()))
    return float(kstwobign.sf(distance * math.sqrt(values.size)))


def correlation(cosines: Values, dims: int) -> float:
    """Two-sided chance of the largest cosine among independent directions in ``dims`` dimensions.

    The cosine r of two independent isotropic vectors makes r √((d − 1)/(1 − r²)) Student's t.
    """
    largest = min(1.0, float(np.abs(cosines).max(initial=0.0)))
    if largest == 1.0:
        return 0.0
    score = largest * math.sqrt((dims - 1) / (1 - largest**2))
    return min(1.0, 2 * cosines.size * float(student.sf(score, dims - 1)))


def unit(values: Values) -> Values:
    """Rows of length 1, float64 [n, d]; rows of zeros stay."""
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(norms > 0, norms, 1.0)


def between_releases(values: Values, others: Values | None = None) -> float:
    """Chance of the largest correlation between two releases, allowing for the number of pairs.

    Args:
        values: float64 [n, d].
        others: of another mechanism, float64 [k, d]; None for pairs among ``values``.
    """
    rows = unit(values)
    if others is not None:
        return correlation(rows @ unit(others).T, values.shape[1])
    pairs = np.triu_indices(len(rows), k=1)
    return correlation((rows @ rows.T)[pairs], values.shape[1])


def _neighbours(values: Values) -> float:
    score = float((values[:, 1:] * values[:, :-1]).sum())
    scale = float((values**2).sum()) / values.size * math.sqrt(values[:, 1:].size)
    return 2 * float(norm.sf(abs(score) / scale)) if scale > 0 else 0.0
