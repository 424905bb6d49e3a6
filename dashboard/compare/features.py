"""Numbers of samples: pixels, principal components, oddness, neighbours, a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedlens.store import decode_png

Matrix: TypeAlias = NDArray[np.float64]
COMPONENTS = 24
NEIGHBOURS = 5


def pixels(pngs: Sequence[bytes]) -> Matrix:
    """Brightness in [0, 1] of equally large images, float64 [n, channels * height * width]."""
    return np.stack([decode_png(png).reshape(-1) for png in pngs]) / 255.0


def components(flat: Matrix, count: int = COMPONENTS) -> Matrix:
    """The first principal components, [n, at most ``count``]; the same sign on every machine."""
    centred = flat - flat.mean(0)
    if len(flat) < 2:
        return np.zeros((len(flat), 2))
    values, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, np.argsort(-values)[: max(2, count)]]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    return np.asarray(centred @ (axes * np.where(signs == 0, 1, signs)))


def pairwise_distances(one: Matrix, other: Matrix) -> Matrix:
    """Euclidean distances, [len(one), len(other)]."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def oddness(features: Matrix, classes: Sequence[int]) -> NDArray[np.float64]:
    """How far each sample is from the nearest ones of its class, [n]; 0 where it has none."""
    found = np.zeros(len(features))
    labels = np.asarray(classes)
    for number in np.unique(labels):
        own = np.flatnonzero(labels == number)
        near = np.sort(pairwise_distances(features[own], features[own]), axis=1)[
            :, 1 : NEIGHBOURS + 1
        ]
        found[own] = near.mean(1) if near.shape[1] else 0.0
    return found


def find_nearest(features: Matrix, place: int, count: int) -> list[int]:
    """Places of the samples most like one, itself first."""
    far = pairwise_distances(features[place : place + 1], features)[0]
    far[place] = -1.0
    return [int(i) for i in np.argsort(far, kind="stable")[:count]]
