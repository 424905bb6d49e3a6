"""A data set from folders of pictures: one sub-folder per class."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedlens.data.dataset import Dataset, DatasetError, Images, Labels, build_dataset, check_size
from fedlens.data.formats.detection import check_no_detection
from fedlens.data.labelled.pictures import GREY_MODES, SUFFIXES, looked_at, read_square
from fedlens.data.spec import DatasetSpec

TEST_SHARE = 6
"""Without train and test folders, about one picture in six is for the test."""


def load_folder(root: Path) -> Dataset:
    """Pictures from ``root/CLASS/`` or ``root/train/CLASS/``, ``root/test/CLASS/``.

    Classes are the sub-folders' names in alphabetical order. All pictures must have one size, a
    square that networks take; nothing is resized unasked (the data set ``tree`` resizes). If all
    are grey there is one channel, else three. Without the folders ``train`` and ``test``, the
    SHA-256 of a picture's path below ``root`` decides where it goes, so that adding pictures never
    moves another.

    Raises:
        DatasetError: when a folder has no classes or pictures, or a picture is damaged or of
            another size; the message names the file.
    """
    if not root.is_dir():
        raise DatasetError(f"{root} is no folder; give image-folder:PATH an existing one")
    check_no_detection(root)
    if (root / "train").is_dir() and (root / "test").is_dir():
        names = _class_names(root / "train")
        _check_test_classes(root / "test", names)
        train, test = _pictures(root / "train", names), _pictures(root / "test", names)
    else:
        names = _class_names(root)
        train, test = _split(root, _pictures(root, names))
    channels = _channels([path for path, _ in (*train, *test)])
    return build_dataset(
        f"image-folder:{root.name}",
        root,
        _read(train, channels),
        _read(test, channels),
        class_names=names,
        attribution=f"your own pictures, from {root.name}",
    )


IMAGE_FOLDER = DatasetSpec(
    "Image folder", lambda path, _: load_folder(Path(path).expanduser()), by_path=True
)


def _class_names(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.iterdir() if _is_class(path))
    if not names:
        raise DatasetError(f"{folder} has no sub-folders; put each class's pictures in one")
    return names


def _is_class(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _check_test_classes(folder: Path, names: list[str]) -> None:
    if unknown := [name for name in _class_names(folder) if name not in names]:
        raise DatasetError(
            f"{folder} has classes {', '.join(unknown)} that the training folder lacks; "
            "use the same sub-folders in both"
        )


def _pictures(folder: Path, names: list[str]) -> list[tuple[Path, int]]:
    """Every picture of ``folder`` with its class number, in alphabetical order."""
    found = [
        (path, label)
        for label, name in enumerate(names)
        if (folder / name).is_dir()
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]
    if not found:
        raise DatasetError(f"{folder} has no pictures in its sub-folders; add some")
    return found


def _split(
    root: Path, pictures: list[tuple[Path, int]]
) -> tuple[list[tuple[Path, int]], list[tuple[Path, int]]]:
    test = {path for path, _ in pictures if _for_test(path.relative_to(root))}
    train_part = [item for item in pictures if item[0] not in test]
    test_part = [item for item in pictures if item[0] in test]
    if not train_part or not test_part:
        raise DatasetError(
            f"{root}: {len(pictures)} pictures are too few to split off a test set; add pictures, "
            "or sort them into the folders train and test"
        )
    return train_part, test_part


def _for_test(path: Path) -> bool:
    digest = hashlib.sha256(path.as_posix().encode()).digest()
    return int.from_bytes(digest[:8], "big") % TEST_SHARE == 0


def _channels(paths: Iterable[Path]) -> int:
    """1 when every picture is grey, else 3; reads the headers only."""
    modes = {looked_at(path)[0] for path in paths}
    return 1 if modes <= set(GREY_MODES) else 3


def _read(pictures: list[tuple[Path, int]], channels: int) -> tuple[Images, Labels]:
    images: list[Images] = []
    for path, _ in pictures:
        width, height = looked_at(path)[1]
        check_size(str(path), channels, height, width)
        if images and height != images[0].shape[1]:
            raise DatasetError(
                f"{path}: is {height} x {width} pixels, the others are "
                f"{images[0].shape[1]} x {images[0].shape[2]}; resize it"
            )
        images.append(read_square(path, height, channels))
    return np.stack(images), np.array([label for _, label in pictures], np.int64)
