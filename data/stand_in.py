"""Public pictures that stand in for data that no one may see: as large, as many, as many classes.

They are the embedded digits, scaled to the size that is asked for. Digits that are mistaken for
each other come first, so that few classes are no easier than many; beyond ten, classes are the same
digits turned or mirrored. Where more records are asked for than there are, digits come again, moved
by a pixel or two. In colour each one has two colours of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.data.dataset import Dataset, DatasetError, Images, Labels, build_dataset
from fedlens.data.embedded import load_embedded
from fedlens.data.spec import Augmentation, DatasetSpec
from fedlens.models.shapes import GOOD_SIDES, SIDES

NAME = "stand-in"
_ARGUMENT = re.compile(r"(\d+)x(\d+)(?:x([13]))?,(\d+)(?:,(\d+))?")
_DIGITS = (4, 9, 7, 3, 5, 8, 2, 6, 0, 1)
"""Digits as classes take them, those that are mistaken for each other first."""
_TURNS = 4
MOST_CLASSES = len(_DIGITS) * _TURNS * 2
_REACH = 2
"""Pixels by which a digit that comes again is moved, at most, along each axis."""


def stand_in_name(side: int, channels: int, classes: int, records: int) -> str:
    """The data set's name, as ``data.name`` takes it."""
    return f"{NAME}:{side}x{side}x{channels},{classes},{records}"


def load_stand_in(argument: str, _: Path | None = None) -> Dataset:
    """Digits by ``SIDExSIDE[xCHANNELS],CLASSES[,RECORDS]``, such as ``32x32x3,5,20000``.

    The same for the same argument, on every machine up to Pillow's scaling.

    Raises:
        DatasetError: the argument is another, or asks for what networks here are not built for.
    """
    side, channels, classes, records = _parsed(argument)
    source = load_embedded()
    rng = np.random.default_rng(len(source.train_images))
    train = _chosen(source.train_images[:, 0], source.train_labels, classes, records, rng)
    test = _chosen(source.test_images[:, 0], source.test_labels, classes, 0, rng)
    (train_images, train_labels), (test_images, test_labels) = (
        (_coloured(_scaled(images, side), channels, rng), labels)
        for images, labels in (train, test)
    )
    return build_dataset(
        f"{NAME}:{argument}",
        Path(NAME),
        (train_images, train_labels),
        (test_images, test_labels),
        class_names=[f"stand-in {i}" for i in range(classes)],
        declared=True,
        attribution=source.attribution,
    )


STAND_IN = DatasetSpec(
    "Public stand-in for data that no one may see",
    load_stand_in,
    by_path=True,
    augmentation=Augmentation("affine"),
    public=True,
)


def _parsed(argument: str) -> tuple[int, int, int, int]:
    found = _ARGUMENT.fullmatch(argument)
    if found is None:
        raise DatasetError(
            f"{NAME}:{argument}: give {NAME}:SIDExSIDE[xCHANNELS],CLASSES[,RECORDS], such as "
            f"{NAME}:32x32x3,5,20000"
        )
    height, width, channels, classes, records = (int(part or 0) for part in found.groups())
    if height != width or height not in SIDES:
        raise DatasetError(f"{NAME}:{argument}: {height} x {width} pixels; a side is {GOOD_SIDES}")
    if not 1 <= classes <= MOST_CLASSES:
        raise DatasetError(f"{NAME}:{argument}: {classes} classes; give 1 to {MOST_CLASSES}")
    return height, channels or 1, classes, records


def _chosen(
    images: Images, labels: Labels, classes: int, records: int, rng: np.random.Generator
) -> tuple[Images, Labels]:
    """Digits of as many classes, as many records of them (0: each digit once a turn), in turn."""
    parts = [_of_class(images, labels, number) for number in range(classes)]
    each = [-(-(records - i) // classes) if records else len(parts[i]) for i in range(classes)]
    again = [_repeated(part, max(1, count), rng) for part, count in zip(parts, each, strict=True)]
    numbers = np.repeat(np.arange(classes, dtype=np.int64), [len(part) for part in again])
    order = rng.permutation(len(numbers))
    return np.concatenate(again)[order], numbers[order]


def _of_class(images: Images, labels: Labels, number: int) -> Images:
    look, digit = divmod(number, len(_DIGITS))
    mine: Images = np.rot90(images[labels == _DIGITS[digit]], look % _TURNS, axes=(1, 2))
    return mine[:, :, ::-1] if look >= _TURNS else mine


def _repeated(images: Images, count: int, rng: np.random.Generator) -> Images:
    """So many images: each once in a random order, then moved ones."""
    order = rng.permutation(len(images))
    chosen = images[np.resize(order, count)]
    moves = rng.integers(-_REACH, _REACH + 1, (max(0, count - len(images)), 2))
    for move in np.unique(moves, axis=0):
        again = len(images) + np.flatnonzero((moves == move).all(1))
        chosen[again] = np.roll(chosen[again], move, (1, 2))
    return chosen


def _scaled(images: Images, side: int) -> Images:
    if images.shape[1:] == (side, side):
        return images
    size = (side, side)
    scaled = [Image.fromarray(one).resize(size, Image.Resampling.BILINEAR) for one in images]
    return np.stack([np.asarray(one) for one in scaled])


def _coloured(images: Images, channels: int, rng: np.random.Generator) -> Images:
    """[n, c, h, w]: in colour each image runs from one colour of its own to another."""
    if channels == 1:
        return images[:, None]
    inks: NDArray[np.float32] = rng.uniform(0, 255, (2, len(images), 3, 1, 1)).astype(np.float32)
    made = np.empty((len(images), 3, *images.shape[1:]), np.uint8)
    for place, image in enumerate(images):
        made[place] = inks[0, place] + (inks[1, place] - inks[0, place]) * (image / np.float32(255))
    return made
