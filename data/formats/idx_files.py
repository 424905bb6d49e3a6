"""IDX files in pairs, images and labels, as MNIST and EMNIST come in."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import (
    TEST,
    TRAIN,
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    reason,
)
from fedlens.data.formats.unpacking import unpacked
from fedlens.data.idx import IMAGES_MAGIC, LABELS_MAGIC, mapped_body
from fedlens.data.spec import Augmentation, DatasetSpec

IMAGES_FILE = re.compile(r"(.*?)[-_.]?images[-_.]idx3[-_.]ubyte(\.gz)?$")
EMNIST_FILE = re.compile(r"emnist-[a-z]+-(train|test)$")
PARTS = {"train": TRAIN, "test": TEST, "t10k": TEST}


def idx_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Pairs ``X-images-idx3-ubyte`` and ``X-labels-idx1-ubyte`` of a folder, plain or gzipped.

    ``path`` is the folder, or one file of images. EMNIST's images are turned as they were written
    (its files have rows and columns swapped), and its labels named by ``emnist-SET-mapping.txt``
    where it is there. Values: ``label``.

    Raises:
        SourceError: there is no pair, or a file is damaged or of another kind.
        DatasetError: as `fedlens.data.idx.mapped_body`.
    """
    found = [path] if path.is_file() else sorted(p for p in path.iterdir() if _stem(p) is not None)
    if not found:
        raise SourceError(f"{path}: has no file of images, such as train-images-idx3-ubyte.gz")
    for file in found:
        yield from _pair(file)


def _pair(images: Path) -> Iterator[Found]:
    stem = _stem(images)
    if stem is None:
        raise SourceError(f"{images}: give the file of images, NAME-images-idx3-ubyte")
    labels = _labels_file(images)
    emnist = EMNIST_FILE.match(stem)
    names = _mapping(images.parent / f"{stem.rpartition('-')[0]}-mapping.txt") if emnist else {}
    part = next((PARTS[word] for word in stem.split("-") if word in PARTS), "")
    with unpacked(images) as pixels_file, unpacked(labels) as labels_file:
        pixels = mapped_body(pixels_file, images, IMAGES_MAGIC, 3)
        numbers = mapped_body(labels_file, labels, LABELS_MAGIC, 1)
        if len(pixels) != len(numbers):
            raise SourceError(
                f"{images}: has {len(pixels)} images and {labels.name} {len(numbers)} labels; one "
                "of them is of another set"
            )
        for row in range(len(pixels)):
            number = int(numbers[row])
            one: NDArray[np.uint8] = np.asarray(pixels[row].T if emnist else pixels[row])
            label = names.get(number, str(number))
            yield SourceRecord(f"{images.name} row {row}", one, {"label": label}, part)


def _stem(path: Path) -> str | None:
    found = IMAGES_FILE.match(path.name)
    return None if found is None or not path.is_file() else found[1]


def _labels_file(images: Path) -> Path:
    name = images.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz")
    for file in (images.with_name(f"{name}.gz"), images.with_name(name)):
        if file.is_file():
            return file
    raise SourceError(f"{images}: its labels are not there; put {name} (plain or .gz) beside it")


def _mapping(path: Path) -> dict[int, str]:
    """Lines of a label and the code of its letter (lower-case ones may stand behind)."""
    if not path.is_file():
        return {}
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        return {int(line[0]): chr(int(line[1])) for line in lines if line}
    except (OSError, ValueError, IndexError, OverflowError) as error:
        raise SourceError(
            f"{path}: is no mapping of labels ({reason(error)}); fetch it again"
        ) from None


def _fits(path: Path) -> bool:
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(4)
        return head == struct.pack(">I", IMAGES_MAGIC) or _stem(path) is not None
    return any(_stem(one) is not None for one in path.iterdir())


IDX = DatasetSpec("IDX files", format=SourceFormat(_fits, idx_records))
EMNIST = DatasetSpec(
    "EMNIST",
    augmentation=Augmentation("affine"),
    format=IDX.format,
    attribution="EMNIST by Cohen et al. (2017), from NIST data",
    public=True,
)
