"""CIFAR-10 and CIFAR-100, binary versions; the Python versions are pickles, never opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
from fedlens.data.spec import Augmentation, DatasetSpec

SIDE, CHANNELS = 32, 3
PIXELS = CHANNELS * SIDE * SIDE
CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


@dataclass(frozen=True)
class _Layout:
    """Bytes of labels in front of a record's planes, with the file of each label's names."""

    files: dict[str, str]
    labels: dict[str, str]

    def records(self, path: Path, columns: SourceColumns) -> Iterator[Found]:
        found = [name for name in self.files if (path / name).is_file()]
        if not found:
            raise SourceError(
                f"{path}: has none of {', '.join(self.files)}; give the folder of the binary "
                "version (the Python version is a pickle, which can run code and is never opened)"
            )
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
            values = {
                label: known[row[at]] if row[at] < len(known) else str(row[at])
                for at, (label, known) in enumerate(names.items())
            }
            picture = np.moveaxis(row[len(names) :].reshape(CHANNELS, SIDE, SIDE), 0, 2)
            yield SourceRecord(f"{file.name} row {place}", np.asarray(picture), values, part)

    def fits(self, path: Path) -> bool:
        return path.is_dir() and any((path / name).is_file() for name in self.files)


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
)
_HUNDRED = _Layout(
    {"train.bin": TRAIN, "test.bin": TEST},
    {"coarse": "coarse_label_names.txt", "fine": "fine_label_names.txt"},
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
