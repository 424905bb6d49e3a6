"""Pictures that a table names: CSV or Parquet, a row a picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedlens.data.formats.records import (
    Found,
    OutsideError,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    inside,
    naming,
    part_of,
)
from fedlens.data.labelled.tables import SUFFIXES, read_rows
from fedlens.data.spec import DatasetSpec

FILE_COLUMNS = ("file", "path", "filename", "file_name", "image")
NAMES = ("manifest.csv", "manifest.parquet")
PART_COLUMNS = ("part", "split")


def manifest_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """A table, or a folder with ``manifest.csv``, ``manifest.parquet`` or one such file.

    Files lie below the table's folder; a path that leads out of it is left out and never opened.
    Values are the table's columns; ``part`` or ``split`` is the part.

    Raises:
        SourceError: there is no table, or several, or none of its columns has the files.
        PrivateDataError: the table cannot be read.
    """
    table = path if path.is_file() else _table(path)
    root, column = table.parent, ""
    for line, row in read_rows(table):
        where = f"{table.name} line {line}"
        if row is None:
            yield UnusableRecord(where, "another number of values than the table has names")
            continue
        column = column or _file_column(table, row, columns)
        name = row[column]
        if not name:
            yield UnusableRecord(where, "no file is named")
            continue
        try:
            file = inside(root, name, where)
        except OutsideError:
            yield UnusableRecord(f"{where} ({name[:80]})", "a path that leads out of the folder")
            continue
        part = next((part_of(row[key]) for key in PART_COLUMNS if key in row), "")
        yield SourceRecord(f"{where} ({name})", file, row, part)


def _file_column(table: Path, row: dict[str, str], columns: SourceColumns) -> str:
    if columns.image and columns.image not in row:
        raise SourceError(f"{table}: has no column {columns.image!r}; there are {', '.join(row)}")
    found = [name for name in FILE_COLUMNS if name in row]
    if not (columns.image or found):
        raise SourceError(
            f"{table}: which column has the files? {naming('image')}; there are {', '.join(row)}"
        )
    return columns.image or found[0]


def _table(folder: Path) -> Path:
    found = [folder / name for name in NAMES if (folder / name).is_file()][:1]
    found = found or sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "no table"
        raise SourceError(
            f"{folder}: has {there}; give one manifest.csv, or name the table itself as the path"
        )
    return inside(folder, found[0].name, str(found[0]))


def _fits(path: Path) -> bool:
    if path.is_file():
        return path.suffix.lower() in SUFFIXES
    return any((path / name).is_file() for name in NAMES) or (
        len([one for one in path.iterdir() if one.suffix.lower() in SUFFIXES]) == 1
    )


MANIFEST = DatasetSpec(
    "Pictures with a manifest",
    format=SourceFormat(
        _fits,
        manifest_records,
        labels=("label", "class", "category", "diagnosis", "target"),
        users=("user", "user_id", "patient", "patient_id", "subject", "client_id", "owner"),
    ),
)
FOLDER = DatasetSpec(
    "Labelled folder",
    format=SourceFormat(_fits, manifest_records, labels=(), users=()),
)
"""The same, of which each attribute's column is named."""
