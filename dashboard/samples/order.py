"""In what order samples stand by what they look like, and where they lie on a map of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlens.dashboard.samples.batches import intact_pixels
from fedlens.store import SampleFilter, Store

Matrix: TypeAlias = NDArray[np.float32]
COMPONENTS = 24
NEIGHBOURS = 5
MOST_VALUES = 1024
"""Of a picture that is compared with others: larger ones are averaged over blocks of pixels."""
MOST_FOR_AXES = 4000
MOST_BESIDE = 2000
"""Samples of its class that each one is compared with."""
AT_ONCE = 1000
MAP_STEPS = 1000


@dataclass(frozen=True)
class Looks:
    """What samples look like, in short."""

    sample_ids: list[int]
    classes: NDArray[np.int64]
    features: Matrix
    """Principal components of the pixels, [n, components]; zeros for damaged pictures."""
    intact: NDArray[np.bool_]

    def by_oddness(self) -> list[int]:
        """All ids, those first that are furthest from others of their class; damaged ones last."""
        odd = np.where(self.intact, oddness(self.features, self.classes), -1.0)
        return [self.sample_ids[i] for i in np.argsort(-odd, kind="stable")]

    def by_likeness(self, sample_id: int) -> list[int]:
        """All ids, those first that look most like one, which itself stands first."""
        near = find_nearest(self.features, self.sample_ids.index(sample_id))
        return [self.sample_ids[i] for i in sorted(near, key=lambda i: not self.intact[i])]


@lru_cache(maxsize=3)
def looks_of(
    store: Store, _made_from: object, wanted: SampleFilter, offset: int, limit: int
) -> Looks:
    """What the samples look like that match.

    Args:
        store: where they lie.
        _made_from: tells them from others in the place of these.
        wanted: which.
        offset: how many to pass over.
        limit: how many at most.
    """
    ids: list[int] = []
    classes: list[int] = []
    rows: list[NDArray[np.uint8] | None] = []
    for place in range(offset, offset + limit, AT_ONCE):
        most = min(AT_ONCE, offset + limit - place)
        for one in store.samples(wanted, offset=place, limit=most):
            ids.append(one.sample_id)
            classes.append(-1 if one.requested_class is None else one.requested_class)
            pixels = intact_pixels(one)
            rows.append(None if pixels is None else shrink(pixels))
    blank = next((np.zeros_like(one) for one in rows if one is not None), np.zeros(2, np.uint8))
    intact = np.array([one is not None for one in rows], bool)
    values = np.stack([blank if one is None else one for one in rows] or [blank][:0])
    return Looks(ids, np.array(classes, np.int64), components(values, intact), intact)


def shrink(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Brightness of [channels, height, width], averaged over blocks where it is of many values."""
    channels, height, width = pixels.shape
    for block in (1, 2, 4, 8, 16):
        fits = height % block == 0 and width % block == 0
        if fits and channels * height * width <= MOST_VALUES * block**2:
            break
    parts = pixels.reshape(channels, height // block, block, width // block, block)
    return np.asarray(parts.mean((2, 4))).astype(np.uint8).reshape(-1)


def components(
    flat: NDArray[np.uint8], intact: NDArray[np.bool_], count: int = COMPONENTS
) -> Matrix:
    """The first principal components, [n, at most ``count``]; the same sign on every machine."""
    known = np.flatnonzero(intact)
    if len(known) < 2:
        return np.zeros((len(flat), 2), np.float32)
    mean, axes = find_axes(flat[known[:: max(1, len(known) // MOST_FOR_AXES)]], count)
    found = [project(flat[part], mean, axes) for part in _parts(len(flat))]
    return np.where(intact[:, None], np.concatenate(found), 0).astype(np.float32)


def find_axes(flat: NDArray[np.uint8], count: int = COMPONENTS) -> tuple[Matrix, Matrix]:
    """Mean picture and principal axes of some pictures, [values] and [values, count]."""
    some = flat.astype(np.float32) / 255
    mean = some.mean(0) if len(some) else np.zeros(flat.shape[1], np.float32)
    values, vectors = np.linalg.eigh((some - mean).T @ (some - mean))
    axes = vectors[:, np.argsort(-values)[: max(2, count)]]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    return mean, axes * np.where(signs == 0, 1, signs)


def project(flat: NDArray[np.uint8], mean: Matrix, axes: Matrix) -> Matrix:
    """Pictures by their principal components, [n, components]."""
    return np.asarray((flat.astype(np.float32) / 255 - mean) @ axes)


def to_steps(flat: Matrix) -> tuple[list[int], list[int]]:
    """Where points of a plane lie across and down, in steps from 0 to `MAP_STEPS`."""
    low, high = flat.min(0, initial=0), flat.max(0, initial=0)
    steps = MAP_STEPS * (flat - low) / np.maximum(high - low, 1e-9)
    found = np.rint(steps).astype(int)
    return found[:, 0].tolist(), found[:, 1].tolist()


def _parts(count: int) -> Iterator[slice]:
    return (slice(place, place + AT_ONCE) for place in range(0, count, AT_ONCE))


def distances(one: Matrix, other: Matrix) -> Matrix:
    """Euclidean distances, [len(one), len(other)]."""
    squares = _lengths(one)[:, None] + _lengths(other)[None] - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _lengths(rows: Matrix) -> Matrix:
    """Squared, [n], without a second matrix as large as this one."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def oddness(features: Matrix, classes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
    """How far each sample is from the nearest ones of its class, [n]; 0 where it has none.

    Of a large class every so manieth sample is compared with, so that a batch takes seconds.
    """
    found = np.zeros(len(features))
    labels = np.asarray(classes)
    for number in np.unique(labels):
        own = np.flatnonzero(labels == number)
        beside = own[:: -(-len(own) // MOST_BESIDE)]
        for part in _parts(len(own)):
            far = distances(features[own[part]], features[beside])
            far[own[part][:, None] == beside[None]] = np.inf  # itself
            found[own[part]] = _mean_of_nearest(far)
    return found


def _mean_of_nearest(far: Matrix) -> NDArray[np.float64]:
    """Mean distance of the nearest ones of each row that are at a distance at all."""
    count = min(NEIGHBOURS, far.shape[1])
    near = np.partition(far, count - 1, axis=1)[:, :count]
    there = np.isfinite(near)
    return np.asarray(np.where(there, near, 0).sum(1) / np.maximum(there.sum(1), 1))


def find_nearest(features: Matrix, place: int) -> list[int]:
    """Places of all samples, those most like one first, itself before them."""
    far = distances(features[place : place + 1], features)[0]
    far[place] = -1.0
    return [int(i) for i in np.argsort(far, kind="stable")]
