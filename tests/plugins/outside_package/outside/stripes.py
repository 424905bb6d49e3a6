"""A data set: stripes that stand or lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedlens.data.dataset import Dataset, build_dataset
from fedlens.data.spec import Augmentation, DatasetSpec

SIDE, COUNT = 28, 600


def load_stripes(path: str, data_dir: Path | None) -> Dataset:
    """Half of them stand (class 0), half of them lie (class 1)."""
    source = np.random.default_rng(0)
    labels = np.arange(COUNT) % 2
    waves = np.sin(np.arange(SIDE) * source.uniform(0.5, 1.5, (COUNT, 1)))
    standing = np.repeat(((waves + 1) * 127).astype(np.uint8)[:, None, :], SIDE, axis=1)
    images = np.where(labels[:, None, None], standing.transpose(0, 2, 1), standing)[:, None]
    train, test = slice(0, COUNT - 100), slice(COUNT - 100, COUNT)
    return build_dataset(
        "stripes",
        Path("stripes"),
        (images[train], labels[train]),
        (images[test], labels[test]),
        class_names=("standing", "lying"),
        attribution="drawn by outside.stripes",
    )


STRIPES = DatasetSpec("Stripes", load_stripes, augmentation=Augmentation("flips"))
