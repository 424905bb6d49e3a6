"""The map of samples by t-SNE, of scikit-learn, prepared once by a process of its own.

It sets alike samples beside each other more clearly than their first two principal components do,
which are the map until it is there, and where scikit-learn is not installed. Run as a module this
file is that process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Hashable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.dashboard.jobs import CommandFailed, follow_command
from fedlens.dashboard.samples.order import AT_ONCE, Matrix, distances
from fedlens.dashboard.samples.prepared import Prepared

MOST_LANDMARKS = 4000
"""Samples that t-SNE places; each other one lies between those that are most like it."""
BESIDE = 3
STEPS = 500
"""Of its descent."""
LEAST = 50
"""Samples below which there is nothing to be clearer about."""
MOST_KEPT = 8
MOST_SECONDS = 1200
NICE = 10


class Maps:
    """Maps by t-SNE: each is prepared once, one after another, and kept in memory."""

    def __init__(self) -> None:
        self._maps: Prepared[Matrix | None] = Prepared(MOST_KEPT)

    def get(self, made_from: Hashable, features: Matrix) -> tuple[Matrix | None, bool]:
        """Where samples lie, [n, 2], or None; and whether that is still being prepared.

        Args:
            made_from: tells these samples from others.
            features: what they look like, [n, components].
        """
        if find_spec("sklearn") is None or len(features) < LEAST:
            return None, False
        try:
            found = self._maps.get(made_from, lambda _: _prepare(features))
        except CommandFailed:  # too many wait: it is asked for again
            return None, True
        return (None, True) if isinstance(found, float) else (found, False)


def _prepare(features: Matrix) -> Matrix | None:
    """The map, or None where it cannot be made: the first components stay it then."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder) / "features.npy", Path(folder) / "map.npy"
            np.save(given, features)
            command = [sys.executable, "-m", __name__, str(given), str(made)]
            follow_command(command, lambda _: None, most_seconds=MOST_SECONDS)
            return np.asarray(np.load(made), np.float32)
    except (CommandFailed, OSError):
        return None


MAPS = Maps()
"""Of this process."""


def find_map(features: Matrix) -> Matrix:
    """Where samples lie, [n, 2]: alike ones together, the same each time."""
    from sklearn.manifold import TSNE

    landmarks = np.arange(0, len(features), -(-len(features) // MOST_LANDMARKS))
    known = features[landmarks]
    descent = TSNE(2, init="pca", random_state=0, max_iter=STEPS, n_jobs=1)
    placed = np.asarray(descent.fit_transform(known), np.float32)
    if len(known) == len(features):
        return placed
    parts = range(0, len(features), AT_ONCE)
    found = np.concatenate([_beside(features[at : at + AT_ONCE], known, placed) for at in parts])
    found[landmarks] = placed
    return found


def _beside(some: Matrix, known: Matrix, placed: Matrix) -> Matrix:
    """Among the landmarks most like each sample, the nearest counting most."""
    far = distances(some, known)
    near: NDArray[np.int64] = np.argpartition(far, BESIDE, axis=1)[:, :BESIDE]
    weight = 1 / (np.take_along_axis(far, near, 1) + 1e-6)
    weight /= weight.sum(1, keepdims=True)
    return np.asarray((placed[near] * weight[:, :, None]).sum(1), np.float32)


def main() -> None:
    """Write the map of the features in one file to another."""
    os.nice(NICE)
    np.save(sys.argv[2], find_map(np.load(sys.argv[1])))


if __name__ == "__main__":
    main()
