"""SVHN's cropped digits: MATLAB 5 files with pictures ``X`` [32, 32, 3, n] and labels ``y`` [n, 1].

Read with SciPy in a child process, which makes no object of a MATLAB file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    part_of,
    reason,
)
from fedlens.data.isolated.process import IsolatedError, read_isolated
from fedlens.data.spec import DatasetSpec

SHAPE = (32, 32, 3)
DIGITS = tuple("0123456789")


def svhn_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of ``train_32x32.mat`` and ``test_32x32.mat`` of a folder, or of one such file.

    A file is in a child process's memory as long as it is read. Values: ``label`` (a zero is 10 in
    the file).

    Raises:
        SourceError: a file is missing, damaged or laid out otherwise.
    """
    files = [path] if path.is_file() else sorted(path.glob("*_32x32.mat"))
    if not files:
        raise SourceError(f"{path}: has no train_32x32.mat; fetch the cropped digits of SVHN")
    for file in files:
        yield from _file(file)


def _file(path: Path) -> Iterator[Found]:
    part, row = part_of(path.name), 0
    try:
        pieces = read_isolated("fedlens.data.isolated.matlab:read_pictures", path)
        shapes = next(pieces)[0]
        _check_shapes(path, shapes["X"], shapes["y"])
        for said, content in pieces:
            for number, label in enumerate(said["labels"]):
                start = number * int(np.prod(SHAPE))
                picture = np.frombuffer(content, np.uint8, int(np.prod(SHAPE)), start)
                values = {"label": str(int(label) % 10) if 0 <= label <= 10 else str(label)}
                yield SourceRecord(f"{path.name} row {row}", picture.reshape(SHAPE), values, part)
                row += 1
    except (IsolatedError, OSError) as error:
        raise SourceError(
            f"{path}: no readable MATLAB 5 file ({reason(error)}); fetch it again"
        ) from None


def _check_shapes(path: Path, pictures: list[int] | None, labels: list[int] | None) -> None:
    if pictures is None or labels is None:
        raise SourceError(f"{path}: lacks X (bytes) or y; fetch the file again")
    if len(pictures) != 4 or tuple(pictures[:3]) != SHAPE:
        raise SourceError(f"{path}: X is {tuple(pictures)}, not (32, 32, 3, n)")
    if int(np.prod(labels)) != pictures[3]:
        raise SourceError(f"{path}: has {pictures[3]} pictures, {int(np.prod(labels))} labels")


def _fits(path: Path) -> bool:
    if path.is_file():
        return path.suffix.lower() == ".mat"
    return next(path.glob("*_32x32.mat"), None) is not None


SVHN = DatasetSpec(
    "SVHN",
    format=SourceFormat(_fits, svhn_records, classes=DIGITS),
    attribution="SVHN by Netzer et al. (2011); for research",
    public=True,
)
