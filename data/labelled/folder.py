"""A folder of pictures with a manifest: ``folder:PATH,utility=COLUMN,sensitive=COLUMN``."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.options import Options, parse_options
from fedlens.data.labelled.labels import OwnRecords, dealt, left_out
from fedlens.data.labelled.pictures import (
    GREY_MODES,
    UnreadablePictureError,
    check_side,
    looked_at,
    read_square,
    resizing_note,
    usual_side,
)
from fedlens.data.labelled.tables import SUFFIXES, TextTable, read_table
from fedlens.data.spec import PrivateSource
from fedlens.models.pixels import from_pixels
from fedlens.privatizers.private_data import PrivateDataError, Split

Kind = TypeVar("Kind")
FILE_COLUMNS = ("file", "path", "filename", "file_name", "image")
DEFAULTS = {
    "utility": "",
    "sensitive": "",
    "owner": "",
    "file": "",
    "manifest": "",
    "side": "",
    "colour": "auto",
    "limit": "20000",
}
COLOURS = {"auto": 0, "grey": 1, "rgb": 3}


def load_labelled_folder(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """The three parts of a folder, dealt by owner or record.

    Raises:
        PrivateDataError: as :func:`read_labelled_folder`, and where an attribute has one value or
            a part lacks one.
    """
    return dealt(read_labelled_folder(name, argument), seed)


def read_labelled_folder(name: str, argument: str) -> OwnRecords:
    """Pictures that a manifest names, with their attributes, pixels in [-1, 1].

    The manifest is ``manifest.csv``, ``manifest.parquet`` or the folder's only such file: a row a
    picture, its path below the folder in the column ``file`` (or ``path``, ``filename``). Rows
    without a value are left out, and so are pictures that cannot be read; a note counts both.
    Pictures are turned upright, cut to their middle square and scaled to ``side`` pixels.

    Raises:
        PrivateDataError: a column or the manifest is missing, a path leaves the folder or is there
            twice, a picture is oversized, or no picture is left.
    """
    options = parse_options("folder", argument, DEFAULTS, needed=("utility", "sensitive"))
    options.one_of("colour", COLOURS)
    if not options.path.is_dir():
        raise PrivateDataError(f"folder: {options.path} is no folder; give one with a manifest")
    table = read_table(_manifest(options))
    files = table.column(_file_column(options, table), "file=")
    wanted = [key for key in ("utility", "sensitive", "owner") if options.values[key]]
    columns = {key: table.column(options.values[key], f"{key}=") for key in wanted}
    _check_files(options.path, table.path, files)
    notes: list[str] = []
    rows = _kept_rows(options, files, columns, notes)
    images, rows = _read(options, files, rows, notes)
    return OwnRecords(
        name=name,
        path=table.path,
        records=from_pixels(images),
        utility=[columns["utility"][row] for row in rows],
        sensitive=[columns["sensitive"][row] for row in rows],
        owners=[columns["owner"][row] for row in rows] if "owner" in columns else None,
        notes=notes,
    )


def _manifest(options: Options) -> Path:
    root, named = options.path, options.values["manifest"]
    if named:
        return inside(root, named, f"folder: manifest={named}")
    for known in ("manifest.csv", "manifest.parquet"):
        if (root / known).is_file():
            return inside(root, known, f"folder: {known}")
    found = sorted(path for path in root.iterdir() if path.suffix.lower() in SUFFIXES)
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "no .csv or .parquet file"
        raise PrivateDataError(
            f"folder: {root} has {there}; add manifest.csv with a column for the file and one for "
            "each attribute, or name it with manifest="
        )
    return inside(root, found[0].name, f"folder: {found[0].name}")


def _file_column(options: Options, table: TextTable) -> str:
    if named := options.values["file"]:
        return named
    for known in FILE_COLUMNS:
        if known in table.columns:
            return known
    raise PrivateDataError(
        f"{table.path}: which column has the files? name it with file=; there are "
        f"{', '.join(table.columns)}"
    )


def inside(root: Path, name: str, where: str) -> Path:
    """``root / name``, if that lies in ``root``, links followed.

    Raises:
        PrivateDataError: it leads out.
    """
    path = root / name
    try:
        safe = path.resolve().is_relative_to(root.resolve()) and "\0" not in name
    except (OSError, ValueError, RuntimeError):
        safe = False
    if not safe:
        raise PrivateDataError(f"{where} leads out of {root}; only files below it are read")
    return path


def _check_files(root: Path, manifest: Path, files: list[str]) -> None:
    for row, file in enumerate(files):
        if file:
            inside(root, file, f"{manifest}: row {row + 1}: {file}")
    twice = [file for file, count in Counter(files).items() if count > 1 and file]
    if twice:
        raise PrivateDataError(
            f"{manifest}: {twice[0]} is in {files.count(twice[0])} rows; give a row a picture"
        )


def _kept_rows(
    options: Options, files: list[str], columns: dict[str, list[str]], notes: list[str]
) -> list[int]:
    """Rows with all values, as many as the limit, chosen by a hash of the file's name."""
    whole = [
        row for row in range(len(files)) if files[row] and all(c[row] for c in columns.values())
    ]
    lacking = sorted(set(range(len(files))) - set(whole))
    left_out(notes, [files[row] or f"row {row + 1}" for row in lacking], "for want of a value")
    limit = options.number("limit", 1)
    if len(whole) <= limit:
        return whole
    notes.append(f"{limit} of {len(whole)} pictures are used; limit= takes more")
    return sorted(sorted(whole, key=lambda row: _hash(files[row]))[:limit])


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _read(
    options: Options, files: list[str], rows: list[int], notes: list[str]
) -> tuple[NDArray[np.uint8], list[int]]:
    """Pixels of the rows whose picture can be read, and these rows."""
    bad: list[str] = []
    known = _each(rows, lambda row: looked_at(options.path / files[row]), files, bad)
    sizes = {size for _, size in known.values()}
    asked = options.values["side"] and options.number("side", 1)
    side = check_side("folder", int(asked or usual_side(sizes)))
    grey = all(mode in GREY_MODES for mode, _ in known.values())
    channels = COLOURS[options.values["colour"]] or (1 if grey else 3)
    images = _each(
        list(known), lambda row: read_square(options.path / files[row], side, channels), files, bad
    )
    left_out(notes, bad, "as no readable picture")
    if not images:
        raise PrivateDataError(
            f"folder: {options.path} has no readable picture that its manifest names; "
            "give PNG or JPEG files"
        )
    notes.extend(resizing_note({known[row][1] for row in images}, side))
    return np.stack(list(images.values())), list(images)


def _each(
    rows: list[int], read: Callable[[int], Kind], files: list[str], bad: list[str]
) -> dict[int, Kind]:
    """What is read of each row; those of which nothing can be are added to ``bad``."""
    found = {}
    for row in rows:
        try:
            found[row] = read(row)
        except UnreadablePictureError:
            bad.append(files[row])
    return found


LABELLED_FOLDER = PrivateSource(load_labelled_folder)
