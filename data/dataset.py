"""What every source returns: a checked, unchangeable data set with a digest that names it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedlens.data.mapped_arrays import blocks
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.unlabelled import NO_CLASS, UNLABELLED
from fedlens.models.shapes import ShapeError, check_shape

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Kind = TypeVar("Kind", bound=np.generic)


class DatasetError(FedlensError, ValueError):
    """Data that is missing, damaged or not of the kind asked for; the message says the fix."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels, split for training and test. The arrays are read-only.

    Attributes:
        name: what it was loaded as, e.g. ``embedded`` or ``npz:faces.npz``.
        train_images: uint8 [n, c, h, w]; c is 1 or 3, h = w one of `SIDES`.
        train_labels: int64 [n], each in [0, classes), or `NO_CLASS` of one without a label.
        test_images: uint8 [m, c, h, w]. For measuring only: never part of a release.
        test_labels: int64 [m].
        classes: number of classes.
        class_names: one name per class, for people to read.
        user_ids: int64 [n], the user each training image belongs to, or None.
        digest: SHA-256, hex, over all arrays of the source with their shapes and types.
        attribution: whom to credit, under which licence.
        train_sensitive: int64 [n], sensitive attribute of each training image, or None.
        test_sensitive: int64 [m], the same of the test images.
        declared: whether the classes' names were published or said beside the records. Others may
            be one person's alone, as a label that nobody else has, and are not told to a store.
    """

    name: str
    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    classes: int
    class_names: tuple[str, ...]
    user_ids: NDArray[np.int64] | None
    digest: str
    attribution: str
    train_sensitive: Labels | None = None
    test_sensitive: Labels | None = None
    declared: bool = False

    def without_labels(self) -> Dataset:
        """The same images, of which nobody has said what they are.

        Networks are built for at least one class, so all are of one, which is none.
        """
        return replace(
            self,
            train_labels=_freeze(np.zeros_like(self.train_labels)),
            test_labels=_freeze(np.zeros_like(self.test_labels)),
            classes=1,
            class_names=(UNLABELLED,),
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of an image."""
        channels, height, width = self.train_images.shape[1:]
        return int(channels), int(height), int(width)


def build_dataset(
    name: str,
    source: Path,
    train: tuple[Images, Labels],
    test: tuple[Images, Labels],
    *,
    class_names: Iterable[str],
    attribution: str,
    user_ids: NDArray[np.int64] | None = None,
    sensitive: tuple[Labels, Labels] | None = None,
    declared: bool = False,
) -> Dataset:
    """Check what a source read and freeze it.

    Args:
        name: the data set's name.
        source: file or folder it came from, named in errors.
        train: images uint8 [n, c, h, w] and labels [n].
        test: the same for the test set.
        class_names: one per class.
        attribution: credit and licence.
        user_ids: user of each training image, or None.
        sensitive: of each training and of each test image, from 0, or None.
        declared: as in `Dataset`.

    Raises:
        DatasetError: on an empty set, wrong shapes, labels out of range, or user ids or
            sensitive values that do not match the images.
    """
    names = tuple(class_names)
    for part, (images, labels), least in (("training", train, NO_CLASS), ("test", test, 0)):
        _check_part(f"{source}: the {part} set", images, labels, len(names), least)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise DatasetError(
            f"{source}: training images are {train[0].shape[1:]} and test images "
            f"{test[0].shape[1:]}; make both the same (channels, height, width)"
        )
    if user_ids is not None and user_ids.shape != train[1].shape:
        raise DatasetError(
            f"{source}: user_ids has shape {user_ids.shape}, but there are {len(train[1])} "
            "training images; give one user id per training image"
        )
    if sensitive is not None:
        _check_sensitive(source, sensitive, (train[1], test[1]))
    train_images, train_labels = _freeze(train[0]), _freeze(train[1])
    test_images, test_labels = _freeze(test[0]), _freeze(test[1])
    owners = None if user_ids is None else _freeze(user_ids)
    arrays: list[NDArray[Any]] = [train_images, train_labels, test_images, test_labels]
    hidden = None if sensitive is None else (_freeze(sensitive[0]), _freeze(sensitive[1]))
    arrays += [*(() if owners is None else (owners,)), *(hidden or ())]
    return Dataset(
        name=name,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=len(names),
        class_names=names,
        user_ids=owners,
        digest=digest_arrays(arrays),
        attribution=attribution,
        train_sensitive=None if hidden is None else hidden[0],
        test_sensitive=None if hidden is None else hidden[1],
        declared=declared,
    )


def digest_arrays(arrays: Iterable[NDArray[Any]]) -> str:
    """SHA-256 (hex) over type, shape and little-endian contents of ``arrays``, in order."""
    digest = hashlib.sha256()
    for array in arrays:
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{plain.dtype.str}{plain.shape}".encode())
        for block in blocks(plain):
            digest.update(block)
    return digest.hexdigest()


def _check_part(where: str, images: Images, labels: Labels, classes: int, least: int) -> None:
    if images.ndim != 4 or images.dtype != np.uint8:
        raise DatasetError(
            f"{where} has images of type {images.dtype} and shape {images.shape}; "
            "give uint8 [n, channels, height, width]"
        )
    if len(images) == 0:
        raise DatasetError(f"{where} is empty; give at least one image")
    if len(images) != len(labels):
        raise DatasetError(
            f"{where} has {len(images)} images but {len(labels)} labels; give one label per image"
        )
    check_size(where, images.shape[1], images.shape[2], images.shape[3])
    low, high = int(labels.min()), int(labels.max())
    if low < least or high >= classes:
        raise DatasetError(
            f"{where} has labels from {low} to {high}; with {classes} classes "
            f"they must lie in 0..{classes - 1}"
        )


def _check_sensitive(
    source: Path, sensitive: tuple[Labels, Labels], labels: tuple[Labels, Labels]
) -> None:
    for part, (found, wanted) in enumerate(zip(sensitive, labels, strict=True)):
        where = f"{source}: {('train', 'test')[part]}_sensitive"
        if found.shape != wanted.shape:
            raise DatasetError(
                f"{where} has shape {found.shape}, but there are {len(wanted)} images; give one "
                "value per image"
            )
        if int(found.min()) < 0:
            raise DatasetError(f"{where} has {int(found.min())}; number the values from 0")


def check_size(where: str, channels: int, height: int, width: int) -> None:
    """Refuse an image size no network here is built for, naming ``where`` it stands.

    Raises:
        DatasetError: unless 1 or 3 channels of a square, its side one of `SIDES`.
    """
    try:
        check_shape((channels, height, width))
    except ShapeError as error:
        raise DatasetError(f"{where}: {error}") from None


def _freeze(array: NDArray[Kind]) -> NDArray[Kind]:
    frozen = np.ascontiguousarray(array)
    frozen.setflags(write=False)
    return frozen
