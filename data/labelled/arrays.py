"""One archive of arrays by name: ``npz:PATH,records=images,utility=NAME,sensitive=NAME``."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedlens.data.attributes.options import Options, parse_options
from fedlens.data.labelled.labels import OwnRecords, deal, keys_of
from fedlens.data.labelled.pictures import check_side, resizing_note, squared, usual_side
from fedlens.data.labelled.series import as_series
from fedlens.data.mapped_arrays import packed_problem, unread
from fedlens.models.shapes import from_pixels
from fedlens.privatizers.private_data import PrivateDataError, Split

DEFAULTS = {
    "utility": "",
    "sensitive": "",
    "owner": "",
    "records": "images",
    "side": "",
    "unit": "",
}
MOST_BYTES = 2**33
"""Of all arrays unpacked; a small archive can claim any size."""
_UNREADABLE = (
    OSError, ValueError, EOFError, MemoryError, zlib.error, zipfile.BadZipFile,
    RuntimeError,  # of a member under a password, or packed in a way that is not known here
)  # fmt: skip


def load_labelled_arrays(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """The three parts of an archive, dealt by owner or record.

    Raises:
        PrivateDataError: as :func:`read_labelled_arrays`, and where an attribute has one value or
            a part lacks one.
    """
    return deal(read_labelled_arrays(name, argument), seed)


def read_labelled_arrays(name: str, argument: str) -> OwnRecords:
    """Pictures or series of an archive, with their attributes.

    ``records`` is uint8 [n, h, w], [n, c, h, w] or [n, h, w, c] (pictures, c 1 or 3), or numbers
    [n, T] or [n, T, 1] (series, their own utility). Attributes and owners are whole numbers or
    texts [n]; of series the sensitive one may be [n, T].

    Raises:
        PrivateDataError: an array is missing, of another form, or holds pickled objects.
    """
    options = parse_options("npz", argument, DEFAULTS, needed=("sensitive",))
    arrays = read_arrays(options.path, options.path, [value for value in _named(options) if value])
    records = arrays[options.values["records"]]
    columns = {
        key: _texts(options.path, options.values[key], arrays[options.values[key]], records)
        for key in ("utility", "sensitive", "owner")
        if options.values[key]
    }
    if is_series(records):
        return _series(name, options, records, columns)
    pixels = pictures_of(options.path, options.values["records"], records)
    if "utility" not in columns:
        raise PrivateDataError(
            f"npz: which array is utility? name it: npz:{options.path},utility=NAME"
        )
    pixels, notes = _resized(options, pixels)
    images = from_pixels(pixels)
    return OwnRecords(
        name=name,
        path=options.path,
        records=images,
        utility=columns["utility"],
        sensitive=columns["sensitive"],
        owners=columns.get("owner"),
        keys=keys_of(columns.get("owner"), images),
        notes=notes,
    )


def names_of(file: Path | IO[bytes], path: Path) -> list[str]:
    """Names of an archive's arrays.

    Raises:
        PrivateDataError: it cannot be read, or unpacks to over 8 GiB.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise PrivateDataError(f"{path}: no readable .npz archive ({unread(error)})") from error
    if sum(member.file_size for member in members) > MOST_BYTES:
        raise PrivateDataError(f"{path}: unpacks to over 8 GiB; split it")
    if problem := packed_problem(file):
        raise PrivateDataError(f"{path}: {problem}")
    return [member.filename.removesuffix(".npy") for member in members]


def read_arrays(
    file: Path | IO[bytes], path: Path, names: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    """The arrays of these names.

    Args:
        file: the archive.
        path: what it is called in errors.
        names: of the arrays.

    Raises:
        PrivateDataError: one is missing or cannot be read, or together they are over 8 GiB.
    """
    there = names_of(file, path)
    if lacking := [name for name in names if name not in there]:
        raise PrivateDataError(f"{path}: has no array {lacking[0]!r}; there are {', '.join(there)}")
    try:
        if not isinstance(file, Path):
            file.seek(0)
        with np.load(file, allow_pickle=False) as content:
            found = {name: content[name] for name in names}
    except _UNREADABLE as error:
        raise PrivateDataError(
            f"{path}: no readable .npz archive of plain numbers and texts ({unread(error)}); write "
            "it with numpy.savez"
        ) from error
    for name, one in found.items():
        # of a member that is no .npy file numpy gives the bytes
        if not isinstance(one, np.ndarray) or not one.ndim:
            raise PrivateDataError(
                f"{path}: {name} is no array with a row a record; write it with numpy.savez"
            )
    return found


def is_series(records: NDArray[np.generic]) -> bool:
    """Whether an array holds series: numbers [n, T] or [n, T, 1], not bytes of pictures."""
    return records.ndim == 2 or (records.ndim == 3 and records.shape[-1] == 1)


def pictures_of(path: Path, key: str, records: NDArray[np.generic]) -> NDArray[np.uint8]:
    """An array of pictures as uint8 [n, c, h, w].

    Raises:
        PrivateDataError: it is of another form.
    """
    if records.dtype == np.uint8 and records.ndim == 3:
        return records[:, None].astype(np.uint8, copy=False)
    if records.dtype == np.uint8 and records.ndim == 4:
        if records.shape[1] in (1, 3):
            return records.astype(np.uint8, copy=False)
        if records.shape[3] in (1, 3):
            return np.moveaxis(records, 3, 1).astype(np.uint8, copy=False)
    raise PrivateDataError(
        f"{path}: {key} has type {records.dtype} and shape {records.shape}; give pictures as uint8 "
        "[n, h, w] or [n, c, h, w] with 1 or 3 channels, or series as numbers [n, T]"
    )


def resized_pictures(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Pictures uint8 [n, c, h, w] cut to their middle square and scaled."""
    if pixels.shape[2:] == (side, side):
        return pixels
    channels = pixels.shape[1]
    flat = [one[0] if channels == 1 else np.moveaxis(one, 0, 2) for one in pixels]
    return np.stack([squared(Image.fromarray(one), side, channels) for one in flat])


def _resized(options: Options, pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], list[str]]:
    height, width = (int(side) for side in pixels.shape[2:])
    if not len(pixels) or not height or not width:
        raise PrivateDataError(f"{options.path}: has no pictures; add some")
    asked = options.values["side"] and options.number("side", 1)
    side = check_side("npz", int(asked or usual_side({(width, height)})))
    return resized_pictures(pixels, side), resizing_note({(width, height)}, side)


def _series(
    name: str,
    options: Options,
    records: NDArray[np.generic],
    columns: dict[str, list[str]],
) -> OwnRecords:
    if not np.issubdtype(records.dtype, np.number) or np.iscomplexobj(records):
        raise PrivateDataError(
            f"{options.path}: series are numbers [n, T], not {records.dtype}; convert them"
        )
    series = records.reshape(len(records), -1).astype(np.float64)
    return as_series(
        name,
        options,
        [f"row {row}" for row in range(len(series))],
        series,
        columns["sensitive"],
        columns.get("owner"),
        [],
    )


def _named(options: Options) -> list[str]:
    return [options.values[key] for key in ("records", "utility", "sensitive", "owner")]


def _texts(
    path: Path, key: str, column: NDArray[np.generic], records: NDArray[np.generic]
) -> list[str]:
    plain = np.issubdtype(column.dtype, np.integer) or column.dtype.kind in "USb"
    fits = column.shape == records.shape[:1] or (
        is_series(records) and column.shape == records.shape[:2]
    )
    if not plain or not fits:
        raise PrivateDataError(
            f"{path}: {key} has type {column.dtype} and shape {column.shape} for "
            f"{len(records)} records; give one whole number or text a record"
        )
    flat = column.ravel().tolist()
    return [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in flat]
