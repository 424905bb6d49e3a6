"""Digits by the people who wrote them: users as they really differ, ten digits of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.dataset import Dataset
from fedlens.data.registry import DatasetError, load

WRITERS: Mapping[str, int] = {"mahdbase": 600, "mnist-writers": 539}
"""Data sets whose writers are known, and how many write the training images."""
EACH = 10
"""Digits of a writer that take part."""
_SEED = 5


def data_set(name: str, data_dir: str = "") -> Dataset:
    """A data set by name; of writers ten training images each, one writer after another.

    Raises:
        DatasetError: there is none, or its files are missing.
    """
    if name not in WRITERS:
        return load(name, data_dir or None)
    return _of_writers(name, data_dir)


@lru_cache(maxsize=2)
def _of_writers(name: str, data_dir: str) -> Dataset:
    folder = Path(data_dir or Path(os.environ.get("FEDLENS_SHARED", "data")) / "data")
    file = folder / name / f"{name}.npz"
    try:
        with np.load(file) as found:
            users: NDArray[np.int64] = found["train_users"]
            held = {key: found[key] for key in found.files if key.endswith(("images", "labels"))}
    except (OSError, KeyError, ValueError) as error:
        raise DatasetError(f"{name}: {file} cannot be read ({error})") from None
    if "train_images" not in held:
        digits = load("mnist", folder / "mnist")
        held |= {"train_images": digits.train_images, "test_images": digits.test_images}
    rows = _some_of_each(users)
    return Dataset(
        name=name,
        train_images=_planes(held["train_images"])[rows],
        train_labels=held["train_labels"].astype(np.int64)[rows],
        test_images=_planes(held["test_images"]),
        test_labels=held["test_labels"].astype(np.int64),
        classes=10,
        class_names=tuple(map(str, range(10))),
        user_ids=users[rows],
        digest="",
        attribution=f"see the README beside {file.name}",
    )


def _planes(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return images[:, None] if images.ndim == 3 else images


def _some_of_each(users: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of `EACH` images of each writer, who has as many."""
    order = np.random.default_rng(_SEED).permutation(len(users))
    own = [order[users[order] == user][:EACH] for user in np.unique(users)]
    return np.concatenate([rows for rows in own if len(rows) == EACH])
