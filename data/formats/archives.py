"""NumPy archives: arrays with a row a record; MedMNIST's and Keras' layouts are some of them."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.pixel_rows import pixel_factor, square_of
from fedlens.data.formats.records import (
    TRAIN,
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    few_of,
    naming,
    part_of,
    reason,
)
from fedlens.data.labelled.arrays import names_of, pictures_of
from fedlens.data.mapped_arrays import let_go, map_array
from fedlens.data.spec import DatasetSpec

IMAGES = "images"
SINGULAR = {"labels": "label", "y": "label", "users": "user", "user_ids": "user"}
"""How arrays that are named in the plural, or by a letter, are called as a record's column."""
KERAS = re.compile(r"(.+)_(train|val|valid|test)")
BLOCK = 4096
"""Rows at a time."""


def npz_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Pictures ``images``, ``train_images`` ... or ``x_train`` ... of an archive, and columns.

    Columns are arrays [n] of whole numbers, truth values, texts or numbers, with the part's word
    before or behind where there are parts (without one they are of the training part); ``labels``,
    ``y``, ``users`` and ``user_ids`` are called ``label`` and ``user``. Of an array [n, k] in which
    each row has a single 1 its place counts (one-hot); else each column, as ``NAME0``, ``NAME1``,
    ... (where k is 1: ``NAME``). Pictures are bytes, whole numbers to 255 or shares of white to 1.
    Arrays stay on the disk.

    Raises:
        SourceError: an array is missing or of another form.
        PrivateDataError: it is no archive, or unpacks to over 8 GiB.
    """
    there = names_of(path, path)
    parts = _parts(there, columns.image)
    if not parts:
        raise SourceError(
            f"{path}: which array has the pictures? {naming('image', 'ARRAY')}; there are "
            f"{few_of(there)}"
        )
    pictures = {name: _unfolded(_mapped(path, name)) for name in parts}
    factors = {
        kind: _factor(path, {name: one for name, one in pictures.items() if one.dtype == kind})
        for kind in {one.dtype for one in pictures.values()}
    }
    for name, part in parts.items():
        found = pictures[name]
        yield from _part(path, there, (name, part), found, factors[found.dtype])


def _parts(there: list[str], asked: str) -> dict[str, str]:
    """Arrays of pictures, and the word of each one's part (empty: none)."""
    found = KERAS.fullmatch(asked)
    if not asked or (found is not None and asked in there):
        base = found[1] if found is not None else next(
            (n for n in ("x", "X") if f"{n}_train" in there), "")  # fmt: skip
        every = {name: KERAS.fullmatch(name) for name in there}
        keras = {name: two[2] for name, two in every.items() if two and two[1] == base}
        if keras:
            return keras
    image = asked or IMAGES
    return {
        name: name.removesuffix(image).rstrip("_")
        for name in there
        if name == image or name.endswith(f"_{image}")
    }


def _part(
    path: Path, there: list[str], named: tuple[str, str], found: NDArray[Any], factor: float
) -> Iterator[Found]:
    name, part = named
    held = _columns(path, there, named, len(found))
    for start in range(0, len(found), BLOCK):
        some = found[start : start + BLOCK]
        if some.dtype != np.uint8 or factor != 1:
            some = np.rint(factor * np.asarray(some, np.float64)).astype(np.uint8)
        for row, one in enumerate(pictures_of(path, name, some), start=start):
            pixels = one[0] if len(one) == 1 else np.moveaxis(one, 0, 2)
            values = {key: _text(column[row]) for key, column in held.items()}
            where = f"{path.name} {name} row {row}"
            yield SourceRecord(where, np.asarray(pixels), values, part_of(part))


def _unfolded(array: NDArray[Any]) -> NDArray[Any]:
    """Square pictures whose rows lie behind each other, [n, h * w], as [n, h, w]."""
    shape = square_of(array.shape[1]) if array.ndim == 2 else None
    return array if shape is None else array.reshape(len(array), *shape)


def _factor(path: Path, pictures: dict[str, NDArray[Any]]) -> float:
    """What arrays of pictures of one kind of number are multiplied with to be bytes.

    Raises:
        SourceError: they are no numbers of that kind.
    """
    least, most, whole = np.inf, -np.inf, True
    for name, array in pictures.items():
        if array.dtype.kind not in "iuf" or array.ndim not in (3, 4):
            pictures_of(path, name, array)  # says what it should be
        for start in range(0, len(array), BLOCK):
            some = np.asarray(array[start : start + BLOCK], np.float64)
            if not bool(np.isfinite(some).all()):
                raise SourceError(f"{path}: {name} has values that are no numbers; mend them")
            least, most = min(least, float(some.min())), max(most, float(some.max()))
            whole = whole and bool((some == np.rint(some)).all())
            let_go(array)
            if array.dtype == np.uint8 and most > 1:
                return 1.0  # bytes, of which no other block says otherwise
    factor = pixel_factor(least, most, whole)
    if factor is None:
        raise SourceError(
            f"{path}: {next(iter(pictures))} has numbers from {least:g} to {most:g}; give bytes, "
            "whole numbers from 0 (black) to 255 (white), or shares of white from 0 to 1"
        )
    return factor


def _columns(
    path: Path, there: list[str], named: tuple[str, str], rows: int
) -> dict[str, NDArray[Any]]:
    """Arrays with a row a picture, by the column's name."""
    image, part = named
    found: dict[str, NDArray[Any]] = {}
    for name in there:
        for short in () if name == image else _called(name, image, part):
            column = _mapped(path, name)
            if short in ("label", "user") and column.shape[:1] != (rows,):
                raise SourceError(
                    f"{path}: {name} has shape {column.shape} for {rows} pictures in {image}; give "
                    "one value a picture"
                )
            if column.dtype.kind not in "iubUSf" or column.shape[:1] != (rows,):
                continue
            found |= _each(short, column)
    return found


def _called(name: str, image: str, part: str) -> list[str]:
    """What an array is called as a column beside these pictures; nothing where it is of others."""
    keras = KERAS.fullmatch(name) if KERAS.fullmatch(image) else None
    if keras is not None:
        return [SINGULAR.get(keras[1], keras[1]), f"{keras[1]}_{TRAIN}"] if keras[2] == part else []
    if part and name.startswith(f"{part}_"):
        name = name.removeprefix(f"{part}_")
    elif part and (part != TRAIN or name.partition("_")[0] in ("test", "val", "validation")):
        return []
    return [SINGULAR.get(name, name)]


def _each(short: str, column: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if column.ndim == 1:
        return {short: column}
    if column.ndim != 2:
        return {}
    if column.shape[1] == 1:
        return {short: column[:, 0]}
    if _is_one_hot(column):
        return {short: column.argmax(1)}
    return {f"{short}{k}": column[:, k] for k in range(column.shape[1])}


def _is_one_hot(column: NDArray[Any]) -> bool:
    return column.dtype.kind in "iubf" and all(
        bool(((some == 0) | (some == 1)).all() and (some.sum(1) == 1).all())
        for some in (column[start : start + BLOCK] for start in range(0, len(column), BLOCK))
    )


def _mapped(path: Path, name: str) -> NDArray[Any]:
    try:
        return map_array(path, name)
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, OverflowError, zlib.error,
            zipfile.BadZipFile, SyntaxError, TypeError) as error:  # fmt: skip
        raise SourceError(
            f"{path}: the array {name} cannot be read ({reason(error)}); write it with numpy.savez"
        ) from error


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.floating):
        return "" if np.isnan(value) else str(int(value) if float(value).is_integer() else value)
    return str(value)


def _fits(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() == ".npz"


ARCHIVE = DatasetSpec("NumPy archive by columns", format=SourceFormat(_fits, npz_records))
MEDMNIST = DatasetSpec(
    "MedMNIST",
    format=ARCHIVE.format,
    attribution="MedMNIST by Yang et al. (2023); see its licence",
    public=True,
)
