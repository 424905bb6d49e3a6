"""A data set from folders of pictures: one sub-folder per class."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedlens.data.dataset import Dataset, DatasetError, Images, Labels, build_dataset, check_size
from fedlens.data.formats.detection import check_no_detection
from fedlens.data.formats.folders import files_beside, is_picture, no_picture
from fedlens.data.formats.layouts import entries, lay_out, sub_folders
from fedlens.data.formats.left_out import LeftOut
from fedlens.data.formats.records import TEST, TRAIN, VALIDATION, SourceColumns
from fedlens.data.labelled.pictures import GREY_MODES, looked_at, read_square
from fedlens.data.spec import DatasetSpec
from fedlens.foundation.unlabelled import NO_CLASS, is_mark

TEST_SHARE = 6
"""Without train and test folders, about one picture in six is for the test."""


def load_folder(root: Path) -> Dataset:
    """Pictures from ``root/CLASS/`` or ``root/train/CLASS/``, ``root/test/CLASS/``.

    Folders are parts, and one is walked through, as for ``tree``: a validation part is left out, or
    takes the place of a test part that is not there.

    Classes are the sub-folders' names in alphabetical order, but for one called ``unlabelled``,
    among them or beside ``train`` and ``test``: its pictures have no label, and take no part in the
    test. All pictures must have one size, a square that networks take; nothing is resized unasked
    (the data set ``tree`` resizes). If all are grey there is one channel, else three. Without the
    folders ``train`` and ``test``, the SHA-256 of a picture's path below ``root`` decides where it
    goes, so that adding pictures never moves another.

    Raises:
        DatasetError: when a folder has no classes or pictures, or a picture is damaged or of
            another size; the message names the file.
    """
    if not root.is_dir():
        raise DatasetError(f"{root} is no folder; give image-folder:PATH an existing one")
    check_no_detection(root)
    tally = LeftOut()
    layout = lay_out(root, SourceColumns(label="folder", told=tally.tell))
    parts = dict(reversed(layout.roots))
    test_folder = parts.get(TEST, parts.get(VALIDATION))
    if TRAIN in parts and test_folder is not None:
        names = _class_names(parts[TRAIN])
        _check_test_classes(test_folder, names)
        train = _pictures(parts[TRAIN], names, tally)
        test = _pictures(test_folder, names, tally)
    else:
        top = parts.get(TRAIN, layout.roots[0][1])
        names = _class_names(top)
        train, test = _split(top, _pictures(top, names, tally))
    for folder in layout.unlabelled:
        train += _of_class(folder, NO_CLASS, root, tally)
    for one in files_beside(layout):
        tally.leave_record(one)
    if TEST not in parts and VALIDATION in parts:
        tally.tell("there is no test part: the validation part takes its place")
    test = _with_labels(test, root, tally)
    for note in tally.sentences():
        logging.getLogger(__name__).warning("%s: %s", root, note)
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


def _with_labels(
    pictures: list[tuple[Path, int]], root: Path, tally: LeftOut
) -> list[tuple[Path, int]]:
    """Pictures of the test that have a label: the others are left out."""
    for path, label in pictures:
        if label == NO_CLASS:
            tally.leave(str(path.relative_to(root)), "of the test, and without a label")
    found = [one for one in pictures if one[1] != NO_CLASS]
    if pictures and not found:
        raise DatasetError(
            f"{root}: no picture of the test part has a label; put some into test/CLASS/ and the "
            "others into train/, or add labelled pictures"
        )
    return found


def _class_names(folder: Path) -> list[str]:
    names = [path.name for path in sub_folders(folder) if not is_mark(path.name)]
    if not names:
        raise DatasetError(f"{folder} has no sub-folders; put each class's pictures in one")
    return names


def _check_test_classes(folder: Path, names: list[str]) -> None:
    if unknown := [name for name in _class_names(folder) if name not in names]:
        raise DatasetError(
            f"{folder} has classes {', '.join(unknown)} that the training folder lacks; "
            "use the same sub-folders in both"
        )


def _pictures(folder: Path, names: list[str], tally: LeftOut) -> list[tuple[Path, int]]:
    """Every picture of ``folder`` with its class number, in alphabetical order."""
    found: list[tuple[Path, int]] = []
    bare = [path.name for path in sub_folders(folder) if is_mark(path.name)]
    for label, name in [*enumerate(names), *((NO_CLASS, name) for name in bare)]:
        found += _of_class(folder / name, label, folder, tally)
    if not found:
        raise DatasetError(
            f"{folder} has no pictures in its sub-folders{tally.why_none()}; add some"
        )
    return found


def _of_class(folder: Path, label: int, top: Path, tally: LeftOut) -> list[tuple[Path, int]]:
    """The pictures of one class's folder, called by their way from ``top`` where left out."""
    found = []
    for entry in entries(folder) if folder.is_dir() else ():
        file = Path(entry.path)
        where = str(file.relative_to(top))
        if file.is_dir():
            tally.leave(where, "in a folder below its class's, which `tree` reads")
        elif is_picture(file):
            found.append((file, label))
        else:
            tally.leave_record(no_picture(file, where))
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
