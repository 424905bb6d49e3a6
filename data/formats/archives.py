"""NumPy archives: arrays with a row a record; MedMNIST's layout is one of them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    naming,
    part_of,
    reason,
)
from fedlens.data.labelled.arrays import names_of, pictures_of
from fedlens.data.mapped_arrays import map_array
from fedlens.data.spec import DatasetSpec

IMAGES = "images"
SINGULAR = {"labels": "label", "users": "user", "user_ids": "user"}
"""How arrays that are named in the plural are called as a record's column."""


def npz_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Pictures ``images`` or ``train_images``, ``test_images``, ... of an archive, and columns.

    Columns are arrays [n] of whole numbers, truth values or texts, with the part's prefix where
    there are parts; ``labels``, ``users`` and ``user_ids`` are called ``label`` and ``user``. Of
    an array [n, k] each column counts, as ``NAME0``, ``NAME1``, ... (where k is 1: ``NAME``).
    Arrays stay on the disk.

    Raises:
        SourceError: an array is missing or of another form.
        PrivateDataError: it is no archive, or unpacks to over 8 GiB.
    """
    there = names_of(path, path)
    image = columns.image or IMAGES
    parts = [name.removesuffix(image) for name in there if name.endswith(image)]
    if not parts:
        raise SourceError(
            f"{path}: which array has the pictures? {naming('image', 'ARRAY')}; there are "
            f"{', '.join(there)}"
        )
    for part in parts:
        yield from _part(path, there, part, image)


def _part(path: Path, there: list[str], prefix: str, image: str) -> Iterator[Found]:
    pictures = pictures_of(path, prefix + image, _mapped(path, prefix + image))
    held = _columns(path, [n for n in there if n.startswith(prefix)], prefix, image, len(pictures))
    for row in range(len(pictures)):
        one = pictures[row]
        pixels = one[0] if len(one) == 1 else np.moveaxis(one, 0, 2)
        values = {name: _text(column[row]) for name, column in held.items()}
        where = f"{path.name} {prefix}{image} row {row}"
        yield SourceRecord(where, np.asarray(pixels), values, part_of(prefix.rstrip("_")))


def _columns(
    path: Path, names: list[str], prefix: str, image: str, rows: int
) -> dict[str, NDArray[Any]]:
    """Arrays with a row a picture, by the column's name."""
    found = {}
    for name in names:
        short = name.removeprefix(prefix)
        if short == image:
            continue
        column = _mapped(path, name)
        short = SINGULAR.get(short, short)
        if column.dtype.kind not in "iubUS" or column.shape[:1] != (rows,):
            continue
        if column.ndim == 1:
            found[short] = column
        elif column.ndim == 2:
            one = column.shape[1] == 1
            found |= {short if one else f"{short}{k}": column[:, k] for k in range(column.shape[1])}
    return found


def _mapped(path: Path, name: str) -> NDArray[Any]:
    try:
        return map_array(path, name)
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, OverflowError, zlib.error,
            zipfile.BadZipFile, SyntaxError, TypeError) as error:  # fmt: skip
        raise SourceError(
            f"{path}: the array {name} cannot be read ({reason(error)}); write it with numpy.savez"
        ) from error


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _fits(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() == ".npz"


ARCHIVE = DatasetSpec("NumPy archive by columns", format=SourceFormat(_fits, npz_records))
MEDMNIST = DatasetSpec(
    "MedMNIST",
    format=ARCHIVE.format,
    attribution="MedMNIST by Yang et al. (2023); see its licence",
    public=True,
)
