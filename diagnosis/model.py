"""A release as a linear model of the faults' shares, with the covariance of all that disturbs it.

Everything is in units of the privacy noise, whose covariance is then the identity. On top of it
come the chance of which users there are, that of the reference, and what may differ between both:
how often each class is, and how much a user contributes. All of these are few directions, so only
inner products of few vectors are ever needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.diagnosis.expected import Matrix, Means
from fedlens.diagnosis.threads import each_in_threads, in_threads
from fedlens.foundation.memory import give_back_memory

Vector = NDArray[np.float64]
Square = NDArray[np.float64]
CLASS_DRIFT = 0.04
"""Standard deviation of how much more often a class is among users than in the reference: twice
what MNIST's test images differ by from its training images."""
FAULT_DRIFT = 0.005
"""The same of every fault of the images: a reference differs from users' data as if so large a
share of the users had it, and as much more of a fault that changes less than a median one."""
MORE_DRIFT = {"tilt": 2.0}
"""Times as much of faults in which people differ anyway: the slant of MNIST's test images differs
from that of its training images as if 3 to 5% of the users' were tilted by 20 degrees."""
TONES = ("gamma",)
"""Faults that no two sources of the same kind of images are quite without."""
TONE_DRIFT = 0.1
"""The same of those: how bright and how thick strokes are differs even between two halves of a
public data set as if so large a share of the users had it, and between its training and its test
images (MNIST: as if 8 to 13% had it)."""
CARD_TONE_DRIFT = 0.04
"""The same of a data card, which counts tones instead of features that tones move: MNIST's training
and test images differ there as if 4% had it, clothes by .7%, Arabic digits by 3%."""
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5)
"""Variances of privacy noise that a direction is taken to have at least, in that of the noise: the
less noise there is, the more a filter would trust directions in which the few reference users do
not happen to differ. For each hypothesis the best of them by the other half is taken: what changes
how much users contribute, as copies of one record do, lies where the users differ least."""
TOGETHER = 32
"""Hypotheses, or rows of another kind, whose products are computed together."""
DIRECTIONS = 60
"""Leading directions in which users differ, where what is unexplained is looked for."""


@dataclass(frozen=True)
class LinearModel:
    """Inner products that every question about the shares is answered from.

    Products are in the metric of the whole covariance. Means over one half of the reference meet
    those over the other alone, so that the reference's own errors do not look like faults.
    """

    products: Square
    """[h, h]: unbiased products of the hypotheses' directions."""
    spread: Square
    """[h, h]: covariance of ``found``."""
    found: Vector
    """[h]: products of the directions with what is observed less the sound mean."""
    scores: Vector
    """[directions]: what is observed less the sound mean, along the leading directions."""
    leading: NDArray[np.float64]
    """[directions, h]: the hypotheses along them."""
    variances: Vector
    """[directions]: variance of ``scores`` where no user has a fault."""

    def only(self, places: Sequence[int]) -> LinearModel:
        """The same with some of the hypotheses alone, in this order."""
        both = np.ix_(list(places), list(places))
        return replace(
            self,
            products=self.products[both],
            spread=self.spread[both],
            found=self.found[list(places)],
            leading=self.leading[:, list(places)],
        )


@dataclass(frozen=True)
class Parts:
    """What parts of a release say of some hypotheses; hypothesis by hypothesis, part by part."""

    found: Vector
    """[hypotheses x parts]: products with what is observed less the sound mean."""
    products: Square
    """[hypotheses x parts, hypotheses]: unbiased products with the hypotheses' directions."""
    covariance: Square
    """Of ``found``."""


@dataclass(frozen=True)
class Disturbance:
    """What moves a release besides faults and privacy noise, one standard deviation a row."""

    one: Matrix
    """Chance, as one half of the reference users shows it, [m, P]."""
    other: Matrix
    """The same by the other half."""
    drifts_one: Matrix
    """How users and reference may differ without a fault, by one half, [drifts, P]. A filter that
    shuts out drifts that the other half shows too would shut out that half's own error."""
    drifts_other: Matrix
    """The same by the other half."""


class Geometry:
    """Inner products of everything but what is observed: the same for every release of its kind.

    One half of the reference says which way to look and how much to trust each direction; what the
    other half shows there is what is expected, and how far chance moves it. A filter that was
    judged by the users that it was made from would seem surer than it is.

    Hypotheses can be added; only their own products are then computed.
    """

    def __init__(self, base: Means, disturbance: Disturbance) -> None:
        """Take up what is not asked about.

        Args:
            base: means of reference users' updates over the noise.
            disturbance: what else moves a release.
        """
        parts = disturbance
        self._vectors = [parts.one, parts.other, parts.drifts_one, parts.drifts_other]
        ends = np.cumsum([0, *map(len, self._vectors)])
        self._one, self._other, self._drift_one, self._drift_other = (
            np.arange(first, last) for first, last in pairwise(ends)
        )
        self._base, self._count = base, int(ends[-1])
        self._vectors.append(np.stack([base.one, base.other]))
        self._gram = np.zeros((0, 0))
        self._factors: Vector | None = None
        self._still: _Still | None = None
        self._extend(0)
        self._axes: _Axes | None = None

    def add(self, means: list[Means]) -> None:
        """Take up hypotheses; the list is emptied, so that no two copies of all are in memory."""
        known = len(self._vectors)
        while means:
            some = means[:TOGETHER]
            del means[:TOGETHER]
            block = np.empty((2 * len(some), len(self._base.one)), np.float32)
            for row, mean in enumerate(some):
                np.subtract(mean.one, self._base.one, out=block[2 * row])
                np.subtract(mean.other, self._base.other, out=block[2 * row + 1])
            self._vectors.append(block)
        if len(self._vectors) > known:
            self._extend(known)
        give_back_memory(cycles=False)

    def _extend(self, known: int) -> None:
        ends = self._ends()
        before, count = len(self._gram), int(ends[-1])
        gram = np.zeros((count, count))
        gram[:before, :before] = self._gram
        pairs = [(i, j) for i in range(known, len(self._vectors)) for j in range(i + 1)]

        def fill(pair: tuple[int, int]) -> None:
            one, other = (torch.from_numpy(self._vectors[place]) for place in pair)
            rows, columns = (slice(ends[i] - len(self._vectors[i]), ends[i]) for i in pair)
            gram[rows, columns] = (one @ other.mT).numpy()
            gram[columns, rows] = gram[rows, columns].T

        in_threads(fill, pairs)
        self._gram, self._still = gram, None

    def rescaled(self, factors: Vector) -> Geometry:
        """The same with every vector, in the order of `gram`, times a factor of its own.

        Nothing can be added to it; releases are projected by this one, times the factors.
        """
        made = copy(self)
        made._factors, made._gram = factors, self._gram * np.outer(factors, factors)
        made._still = made._axes = None
        return made

    def size(self, place: int) -> float:
        """What a fault in all users changes, squared and over the noise.

        Without what else moves a release, and without the reference's own error.
        """
        even, odd = self._pairs()
        return max(0.0, float(self._gram[even[place], odd[place]]))

    def project(self, values: Matrix) -> Square:
        """Products of releases [k, P] with all vectors, [k, vectors]: all that is needed."""
        return np.concatenate([values @ part.T for part in self._vectors], axis=1).astype(float)

    @property
    def gram(self) -> Square:
        """Products of all vectors with each other: the covariance of projected privacy noise."""
        return self._gram

    def model(self, seen: Vector, *, difference: bool = False) -> LinearModel:
        """The model of one release.

        Args:
            seen: its projection, float64 [vectors].
            difference: whether the sound mean is in it no more.
        """
        still, count, gram = self._filtered(), self._count, self._gram
        rest_one, rest_other = (
            (seen, seen) if difference else (seen - gram[count], seen - gram[count + 1])
        )
        return LinearModel(
            products=still.products,
            spread=still.spread,
            found=(still.one @ rest_other + still.other @ rest_one) / 2,
            scores=still.along @ (rest_one[:count] + rest_other[:count]) / 2,
            leading=still.leading,
            variances=still.variances,
        )

    def parts(
        self, places: Sequence[int], value: Matrix, starts: NDArray[np.int64], *, difference: bool
    ) -> Parts:
        """What parts of one release say of some hypotheses, each by its own filter.

        Args:
            places: of the hypotheses.
            value: the release, float32 [P].
            starts: where each part begins, ascending from 0.
            difference: whether the sound mean is in it no more.
        """
        still = self._filtered()
        by_one, by_other = (self._mixed(each[list(places)]) for each in (still.one, still.other))
        one, other, drifts_one, drifts_other, base = map(self._scaled, range(5))
        base = 0 * base if difference else base
        own = np.stack([self._pair(place) for place in places])

        def told(filters: Matrix, shown: Matrix) -> Square:
            some = [shown[first : first + TOGETHER] for first in range(0, len(shown), TOGETHER)]
            sums = [
                np.concatenate([np.add.reduceat(row * part, starts, axis=-1) for part in some]).T
                for row in filters
            ]
            return np.concatenate(sums).astype(float)

        drift = (told(by_one, drifts_other) + told(by_other, drifts_one)) / 2
        middle = ((by_one + by_other) / 2).astype(np.float32)
        covariance = _noise_by_part(middle, starts) + drift @ drift.T
        for chance in (told(by_one, other), told(by_other, one)):
            covariance = covariance + chance @ chance.T / 2
        seen = told(by_one, (value - base[1])[None]) + told(by_other, (value - base[0])[None])
        return Parts(
            found=seen[:, 0] / 2,
            products=(told(by_one, own[:, 1]) + told(by_other, own[:, 0])) / 2,
            covariance=covariance,
        )

    def _ends(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.cumsum([len(part) for part in self._vectors])
        return found

    def _scaled(self, number: int) -> Matrix:
        """One lot of vectors, times their factors."""
        own, last = self._vectors[number], self._ends()[number]
        if self._factors is None:
            return own
        return own * self._factors[last - len(own) : last, None].astype(np.float32)

    def _pair(self, place: int) -> Matrix:
        """A hypothesis by the one half, and by the other, times their factors."""
        first = self._count + 2 + 2 * place
        number = int(np.searchsorted(self._ends(), first, side="right"))
        inside = first - int(self._ends()[number]) + len(self._vectors[number])
        return self._scaled(number)[inside : inside + 2]

    def _mixed(self, coefficients: Square) -> Matrix:
        """Sums of all vectors with such coefficients [k, vectors], [k, P]."""
        scaled = coefficients if self._factors is None else coefficients * self._factors
        pieces = np.split(scaled.astype(np.float32), self._ends()[:-1], axis=1)
        mixed = [piece @ part for piece, part in zip(pieces, self._vectors, strict=True)]
        found: Matrix = np.sum(mixed, axis=0)
        return found

    def _filtered(self) -> _Still:
        """The filters, made once for all releases."""
        if self._still is None:
            self._still = self._filters()
        return self._still

    def _filters(self) -> _Still:
        """Each hypothesis through the filter by which it shows most over what disturbs it."""
        self._known_axes()  # not once by each thread
        shown = each_in_threads(self._by_ridge, RIDGES)
        one, other, most = next(shown)
        for more, others, signals in shown:
            better = signals > most
            one[better], other[better], most[better] = more[better], others[better], signals[better]
            del more, others
        give_back_memory(cycles=False)
        return self._still_of(one, other)

    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the hypotheses by the one half, and by the other."""
        first = self._count + 2
        return np.arange(first, len(self._gram), 2), np.arange(first + 1, len(self._gram), 2)

    def _known_axes(self) -> _Axes:
        """What disturbs a release is the same whatever is asked about: taken apart once."""
        if self._axes is None:
            gram, count = self._gram, self._count
            ways = ((self._one, self._drift_one), (self._other, self._drift_other))
            rows = [np.concatenate(pair) for pair in ways]
            wholes = [np.ix_(each, each) for each in (*rows, np.arange(count))]
            one, other, (values, vectors) = in_threads(_taken_apart, [gram[it] for it in wholes])
            kept = values > 1e-9 * max(values[-1], 1e-300)
            kept[:-DIRECTIONS] = False
            along = (vectors[:, kept] / np.sqrt(values[kept])).T
            self._axes = _Axes((_Half(rows[0], *one), _Half(rows[1], *other)), along, values[kept])
        return self._axes

    def _by_ridge(self, ridge: float) -> tuple[Square, Square, Vector]:
        """Filters by either half, and the squared signal of each hypothesis over its variance."""
        even, odd = self._pairs()
        halves = self._known_axes().halves
        one, other = (self._filter(r, h, ridge) for r, h in zip((even, odd), halves, strict=True))
        return one, other, self._signals(one, other)

    def _signals(self, one: Square, other: Square) -> Vector:
        """The squared signal of each hypothesis in all users, over its variance."""
        gram, (even, odd) = self._gram, self._pairs()
        sizes = ((one * gram[odd]).sum(1) + (other * gram[even]).sum(1)) / 2
        by_one, by_other = _product(one, gram), _product(other, gram)
        middle, drifts = one + other, by_one[:, self._drift_other] + by_other[:, self._drift_one]
        spread = (middle * (by_one + by_other)).sum(1) / 4 + np.square(drifts).sum(1) / 4
        for chances in (by_one[:, self._other], by_other[:, self._one]):
            spread += np.square(chances).sum(1) / 2
        found: Vector = np.maximum(sizes, 0) ** 2 / np.maximum(spread, 1e-300)
        return found

    def _products(self, one: Square, other: Square) -> Square:
        even, odd = self._pairs()
        found: Square = (one @ self._gram[:, odd] + other @ self._gram[:, even]) / 2
        return found

    def _spread(self, one: Square, other: Square) -> Square:
        gram, middle = self._gram, (one + other) / 2
        drift = (one @ gram[:, self._drift_other] + other @ gram[:, self._drift_one]) / 2
        chances = [one @ gram[:, self._other], other @ gram[:, self._one]]
        found: Square = middle @ gram @ middle.T + drift @ drift.T
        for part in chances:
            found = found + part @ part.T / 2
        return found

    def _still_of(self, one: Square, other: Square) -> _Still:
        gram, count, axes = self._gram, self._count, self._known_axes()
        even, odd = self._pairs()
        along = axes.along
        return _Still(
            one=one,
            other=other,
            products=self._products(one, other),
            spread=self._spread(one, other),
            along=along,
            leading=along @ (gram[:count, even] + gram[:count, odd]) / 2,
            variances=1 + axes.sizes / 2,  # chance is in there twice, by each half
        )

    def _filter(self, rows: NDArray[np.int64], half: _Half, ridge: float) -> Square:
        """Directions times the inverse covariance, as coefficients of all vectors, [h, vectors]."""
        found = np.zeros((len(rows), len(self._gram)))
        found[np.arange(len(rows)), rows] = 1
        along = _product(half.vectors.T, self._gram[np.ix_(half.rows, rows)])
        found[:, half.rows] = -_product(half.vectors, along / (ridge + half.values)[:, None]).T
        return found


@dataclass(frozen=True)
class _Half:
    """Products of what disturbs a release, by one half of the reference, taken apart."""

    rows: NDArray[np.int64]
    """Places among all vectors."""
    values: Vector
    vectors: Square


@dataclass(frozen=True)
class _Axes:
    """What depends on no hypothesis."""

    halves: tuple[_Half, _Half]
    along: Square
    """Leading directions of both, as coefficients."""
    sizes: Vector
    """Of those."""


def _product(one: Square, other: Square) -> Square:
    """By one thread inside `one_thread_each`, whose number NumPy's own products do not heed."""
    return (torch.from_numpy(one) @ torch.from_numpy(other)).numpy()


def _taken_apart(products: Square) -> tuple[Vector, Square]:
    """Eigenvalues, ascending, and eigenvectors, by one thread."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(products))
    return values.numpy(), vectors.numpy()


def _noise_by_part(filters: Matrix, starts: NDArray[np.int64]) -> Square:
    """Covariance of privacy noise in what filters [k, P] say, part by part: parts share none."""
    count, parts = len(filters), len(starts)
    found = np.zeros((count, parts, count, parts))
    places = np.arange(parts)
    for one in range(count):
        for other in range(count):
            shared = np.add.reduceat(filters[one] * filters[other], starts)
            found[one, places, other, places] = shared
    return found.reshape(count * parts, count * parts)


@dataclass(frozen=True)
class _Still:
    """What does not depend on what is observed."""

    one: Square
    """Filters by one half, as coefficients of all vectors, [h, vectors]."""
    other: Square
    products: Square
    spread: Square
    along: Square
    leading: Square
    variances: Vector
