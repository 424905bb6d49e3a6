"""A data set from one NumPy archive (.npz)."""

from __future__ import annotations

import logging
import unicodedata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.dataset import Dataset, DatasetError, build_dataset
from fedlens.data.labelled.arrays import load_labelled_arrays
from fedlens.data.mapped_arrays import is_mappable, map_array, packed_problem, unread
from fedlens.data.spec import DatasetSpec
from fedlens.foundation.names import NAME_RULE, is_plain_name
from fedlens.foundation.unlabelled import UNLABELLED, is_mark

LABELS = {"train_labels": "train_images", "test_labels": "test_images"}
REQUIRED = ("train_images", "train_labels", "test_images", "test_labels")
SENSITIVE = ("train_sensitive", "test_sensitive")
CLASSES = "classes"
OPTIONAL = ("user_ids", CLASSES, *SENSITIVE)
CHANNELS = (1, 3)
MOST_CLASSES = 1000
"""A label above is a mistake rather than a class; it would size the networks."""


def load_npz(path: Path) -> Dataset:
    """Arrays train_images, train_labels, test_images, test_labels and some that need not be there.

    These are both labels, without which no record has one; user_ids; both or none of
    train_sensitive and test_sensitive (the attribute that a privatizer hides); and classes, their
    number, or the name of each as texts: without it the highest label of all records decides, which
    may be one person's. Images are uint8 [n, h, w] (grey), [n, c, h, w] or [n, h, w, c]; all else
    is whole numbers. Pickled objects in the file are refused.

    Raises:
        DatasetError: when the file or an array is missing, damaged or of the wrong kind.
    """
    arrays = _read(path)
    unlabelled = not set(LABELS) & set(arrays)
    if unlabelled:
        arrays |= {name: np.zeros(len(arrays[images]), np.int64) for name, images in LABELS.items()}
    declared = _declared(path, arrays.pop(CLASSES, None))
    labels = {key: _whole(path, key, arrays[key]) for key in arrays if not key.endswith("images")}
    found = int(max(labels[key].max(initial=0) for key in LABELS))
    highest = found if declared is None else len(declared) - 1
    if declared is None and all(labels[key].min(initial=1) > 0 for key in LABELS):
        raise DatasetError(
            f"{path}: no record has the label 0; number the classes from 0, or add the array "
            "classes with their number"
        )
    if highest >= MOST_CLASSES:
        raise DatasetError(
            f"{path}: label {highest} would mean {highest + 1} classes; number the classes from 0 "
            f"(at most {MOST_CLASSES})"
        )
    if declared is None:
        _tell_empty(path, labels, highest)
    return build_dataset(
        f"npz:{path.name}",
        path,
        (_images(path, "train_images", arrays), labels["train_labels"]),
        (_images(path, "test_images", arrays), labels["test_labels"]),
        class_names=[UNLABELLED] if unlabelled else declared or _numbers(highest + 1),
        declared=declared is not None,
        attribution=f"your own data, from {path.name}",
        user_ids=labels.get("user_ids"),
        sensitive=_sensitive(path, labels),
    )


def _tell_empty(path: Path, labels: dict[str, NDArray[np.int64]], highest: int) -> None:
    """Say which numbers below the highest label are nobody's, as where labels begin at 1."""
    there = set(np.unique(np.concatenate([labels["train_labels"], labels["test_labels"]])).tolist())
    if lacking := [str(one) for one in range(highest) if one not in there]:
        logging.getLogger(__name__).warning(
            "%s: no record of class %s, which counts as one all the same; number labels from 0 "
            "without gaps, or name the number of classes in an array classes",
            path,
            ", ".join(lacking[:10]) + (", ..." if len(lacking) > 10 else ""),
        )


def _declared(path: Path, classes: NDArray[np.generic] | None) -> list[str] | None:
    """What the classes are called; their numbers, where the archive says but how many there are."""
    if classes is None:
        return None
    if classes.dtype.kind == "U" and classes.ndim == 1 and 0 < len(classes) <= MOST_CLASSES:
        return _names(path, classes)
    given = int(classes.item()) if classes.size == 1 and classes.dtype.kind in "iu" else 0
    if not 0 < given <= MOST_CLASSES:
        raise DatasetError(
            f"{path}: classes must be one whole number from 1 to {MOST_CLASSES}, or as many texts, "
            "the name of each class"
        )
    return _numbers(given)


def _names(path: Path, found: NDArray[np.generic]) -> list[str]:
    try:
        names = [unicodedata.normalize("NFC", name).strip() for name in found.tolist()]
    except (ValueError, SystemError):  # no letters at all: what NumPy raises of them
        raise DatasetError(
            f"{path}: classes has texts that cannot be read; write them anew"
        ) from None
    for number, name in enumerate(names):
        if not is_plain_name(name) or is_mark(name) or name in names[:number]:
            raise DatasetError(
                f"{path}: classes[{number}] is {name[:80]!r}; call each class otherwise: "
                f"{NAME_RULE}, and not {UNLABELLED}"
            )
    return names


def _numbers(classes: int) -> list[str]:
    return [str(label) for label in range(classes)]


NPZ = DatasetSpec(
    "NumPy arrays",
    lambda path, _: load_npz(Path(path).expanduser()),
    by_path=True,
    private=load_labelled_arrays,
)


def _sensitive(
    path: Path, found: dict[str, NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    given = [key for key in SENSITIVE if key in found]
    if not given:
        return None
    if len(given) < len(SENSITIVE):
        raise DatasetError(f"{path}: has {given[0]} alone; give both of {' and '.join(SENSITIVE)}")
    return found[SENSITIVE[0]], found[SENSITIVE[1]]


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    if problem := packed_problem(path):
        raise DatasetError(f"{path}: {problem}")
    try:
        archive = np.load(path, allow_pickle=False)
    except Exception as error:  # NumPy, zipfile and zlib raise many kinds on damaged files
        raise DatasetError(
            f"{path}: no readable .npz archive ({unread(error)}); write it with numpy.savez"
        ) from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DatasetError(f"{path}: holds a single array; write all arrays with numpy.savez")
    with archive:
        needed = REQUIRED if set(LABELS) & set(archive.files) else tuple(LABELS.values())
        if missing := [key for key in needed if key not in archive.files]:
            raise DatasetError(
                f"{path}: lacks {', '.join(missing)}; it needs {', '.join(REQUIRED)}; archive:PATH "
                "reads other names and kinds"
            )
        wanted = [*needed, *(key for key in OPTIONAL if key in archive.files)]
        try:
            found = {key: _array(path, archive, key) for key in wanted}
        except Exception as error:  # as above
            raise DatasetError(
                f"{path}: an array cannot be read ({error}); write plain numbers with numpy.savez"
            ) from error
    if strange := [key for key in wanted if not isinstance(found[key], np.ndarray)]:
        raise DatasetError(
            f"{path}: {strange[0]} is no array; write plain numbers with numpy.savez"
        )
    return found


def _array(path: Path, archive: np.lib.npyio.NpzFile, key: str) -> NDArray[np.generic]:
    """An array of an archive; a large one that lies there uncompressed stays on the disk."""
    return map_array(path, key) if is_mappable(path, key) else archive[key]


def _images(path: Path, key: str, arrays: dict[str, NDArray[np.generic]]) -> NDArray[np.uint8]:
    images = arrays[key]
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DatasetError(
            f"{path}: {key} has type {images.dtype} and shape {images.shape}; give uint8 "
            "[n, h, w], [n, channels, h, w] or [n, h, w, channels] with pixels 0..255, or name it "
            "archive:PATH, which converts"
        )
    pixels = images.astype(np.uint8, copy=False)
    if pixels.ndim == 3:
        return pixels[:, None]
    last = pixels.shape[1] not in CHANNELS and pixels.shape[3] in CHANNELS
    return np.moveaxis(pixels, 3, 1) if last else pixels


def _whole(path: Path, key: str, array: NDArray[np.generic]) -> NDArray[np.int64]:
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DatasetError(
            f"{path}: {key} has type {array.dtype} and shape {array.shape}; give whole numbers "
            "[n], or name it archive:PATH, which converts"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DatasetError(f"{path}: {key} has numbers over 2**63 - 1; number them from 0")
    return array.astype(np.int64)
