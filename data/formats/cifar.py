"""CIFAR-10 and CIFAR-100: binary versions, and the Python versions without carrying them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from fedlens.data.isolated.process import IsolatedError, read_isolated
from fedlens.data.spec import Augmentation, DatasetSpec

SIDE, CHANNELS = 32, 3
PIXELS = CHANNELS * SIDE * SIDE
CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_PICKLED = "fedlens.data.isolated.pickled"
PICKLE = b"\x80"
"""The first byte of each pickle of a version that CIFAR comes in."""


@dataclass(frozen=True)
class _Layout:
    """Bytes of labels in front of a record's planes, with the file of each label's names.

    Attributes:
        files: of the binary version, with their part.
        labels: of each label its file of names.
        pickled: of the Python version, with their part.
        names: its file of names.
        keys: of each label its lists of numbers and of names.
    """

    files: dict[str, str]
    labels: dict[str, str]
    pickled: dict[str, str]
    names: str
    keys: dict[str, tuple[str, str]]

    def records(self, path: Path, columns: SourceColumns) -> Iterator[Found]:
        found = [name for name in self.files if (path / name).is_file()]
        pickled = [name for name in self.pickled if _is_pickle(path / name)]
        if not (found or pickled):
            raise SourceError(
                f"{path}: has none of {', '.join(self.files)} (or of {', '.join(self.pickled)} of "
                "the Python version); give the folder of the published files"
            )
        if not found:
            yield from self._pickled(path, pickled)
            return
        names = {label: _names(path / file) for label, file in self.labels.items()}
        for name in found:
            yield from self._file(path / name, names, self.files[name])

    def _file(self, file: Path, names: dict[str, list[str]], part: str) -> Iterator[Found]:
        length = len(names) + PIXELS
        size = file.stat().st_size
        if not size or size % length:
            raise SourceError(
                f"{file}: {size} bytes are no whole number of records of {length}; fetch the "
                "binary version again"
            )
        rows = np.memmap(file, np.uint8, "r", shape=(size // length, length))
        for place, row in enumerate(rows):
            numbers = zip(names.items(), row.tolist(), strict=False)
            values = {label: _named(known, number) for (label, known), number in numbers}
            yield _record(file, place, row[len(names) :], values, part)

    def _pickled(self, path: Path, files: list[str]) -> Iterator[Found]:
        """Records of the Python version, each file read by stand-ins in a child process."""
        names = self._pickled_names(path / self.names)
        for name in files:
            place = 0
            try:
                for said, content in read_isolated(f"{_PICKLED}:read_batch", path / name):
                    planes = np.frombuffer(content, np.uint8).reshape(-1, PIXELS)
                    numbers = {key: said["labels"][self.keys[key][0]] for key in self.keys}
                    for at, row in enumerate(planes):
                        values = {
                            key: _named(names[key], found[at]) for key, found in numbers.items()
                        }
                        yield _record(path / name, place, row, values, self.pickled[name])
                        place += 1
            except (IsolatedError, OSError, KeyError) as error:
                raise SourceError(
                    f"{path / name}: is no batch of CIFAR's Python version ({reason(error)}); "
                    "fetch it again"
                ) from None

    def _pickled_names(self, path: Path) -> dict[str, list[str]]:
        if not path.is_file():
            return {key: [] for key in self.keys}
        try:
            ((said, _),) = read_isolated(f"{_PICKLED}:read_names", path)
        except (IsolatedError, OSError) as error:
            raise SourceError(
                f"{path}: no names of classes ({reason(error)}); fetch it again"
            ) from None
        return {key: said["names"].get(own, []) for key, (_, own) in self.keys.items()}

    def fits(self, path: Path) -> bool:
        return path.is_dir() and (
            any((path / name).is_file() for name in self.files)
            or any(_is_pickle(path / name) for name in self.pickled)
        )


def _is_pickle(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) == PICKLE


def _named(known: list[str], number: int) -> str:
    return known[number] if number < len(known) else str(number)


def _record(
    file: Path, place: int, planes: NDArray[np.uint8], values: dict[str, str], part: str
) -> SourceRecord:
    picture = np.moveaxis(planes.reshape(CHANNELS, SIDE, SIDE), 0, 2)
    return SourceRecord(f"{file.name} row {place}", np.asarray(picture), values, part)


def _names(path: Path) -> list[str]:
    """Names of classes, a line each; none where the file is missing: numbers stand for them."""
    if not path.is_file():
        return []
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{path}: no names of classes ({reason(error)}); fetch it again"
        ) from None


_TEN = _Layout(
    {**{f"data_batch_{i}.bin": TRAIN for i in range(1, 6)}, "test_batch.bin": TEST},
    {"label": "batches.meta.txt"},
    {**{f"data_batch_{i}": TRAIN for i in range(1, 6)}, "test_batch": TEST},
    "batches.meta",
    {"label": ("labels", "label_names")},
)
_HUNDRED = _Layout(
    {"train.bin": TRAIN, "test.bin": TEST},
    {"coarse": "coarse_label_names.txt", "fine": "fine_label_names.txt"},
    {"train": TRAIN, "test": TEST},
    "meta",
    {
        "coarse": ("coarse_labels", "coarse_label_names"),
        "fine": ("fine_labels", "fine_label_names"),
    },
)
CIFAR10 = DatasetSpec(
    "CIFAR-10",
    augmentation=Augmentation("flips"),
    format=SourceFormat(_TEN.fits, _TEN.records, classes=CIFAR10_CLASSES),
    attribution="CIFAR-10 by Krizhevsky (2009)",
    public=True,
)
CIFAR100 = DatasetSpec(
    "CIFAR-100",
    augmentation=Augmentation("flips"),
    format=SourceFormat(_HUNDRED.fits, _HUNDRED.records, labels=("coarse",)),
    attribution="CIFAR-100 by Krizhevsky (2009)",
    public=True,
    columns={"label": "coarse", "sensitive": "fine", "limit": "50000"},
)
