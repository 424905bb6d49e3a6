"""Pictures that a table names: CSV or Parquet, a row a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from fedlens.data.formats.dicom import SUFFIXES as SCANS
from fedlens.data.formats.folders import files_below, has_class_folders
from fedlens.data.formats.layouts import entries, sub_folders
from fedlens.data.formats.records import (
    PATH_OUT,
    Found,
    OutsideError,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    inside,
    is_value,
    naming,
    part_of,
    usual_column,
)
from fedlens.data.labelled.pictures import SUFFIXES as PICTURES
from fedlens.data.labelled.tables import SUFFIXES, read_rows
from fedlens.data.spec import DatasetSpec

FILE_COLUMNS = ("file", "path", "filename", "file_name", "image")
NAMES = ("manifest.csv", "manifest.parquet")
PART_COLUMNS = ("part", "split", "subset")
MOST_FOLDERS = 64
"""Folders that are looked into for a table."""
MOST_LISTED = 1_000_000
"""Files below a folder among which one is looked for by its name."""
NAMED = (*PICTURES, *SCANS)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://")
_ON_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def manifest_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """A table, or a folder with ``manifest.csv``, ``manifest.parquet`` or one such file.

    Files lie below the table's folder; a path that leads out of it is left out and never opened.
    One that is not where the table says is looked for by its name, with or without its ending, and
    taken where there is one such file alone. Values are the table's columns; ``part`` or ``split``
    (in any capitals) is the part.

    Raises:
        SourceError: there is no table, or several, or none of its columns has the files.
        PrivateDataError: the table cannot be read.
    """
    table = path if path.is_file() else _table(path)
    root = path if path.is_dir() else table.parent
    column, files = "", NamedFiles(root)
    for line, row in read_rows(table):
        where = f"{table.name} line {line}"
        if row is None:
            yield UnusableRecord(where, "another number of values than the table has names")
            continue
        column = column or _file_column(table, row, columns)
        name = row[column]
        if not is_value(name):
            yield UnusableRecord(where, "no file is named")
            continue
        file = _located(root, table.parent, name, f"{where} ({name[:80]})", files)
        if isinstance(file, UnusableRecord):
            yield file
            continue
        files.name(file)
        said = row.get(usual_column(row, PART_COLUMNS), "")
        part = part_of(said) if is_value(said) else ""
        yield SourceRecord(f"{where} ({name})", file, row, part)
    if unnamed := files.count_unnamed():
        columns.told(f"{unnamed} pictures below {root} are named by no row of {table.name}")


def _located(
    root: Path, beside: Path, name: str, where: str, files: NamedFiles
) -> Path | UnusableRecord:
    """The file that a table names, from the table's folder, or wherever it lies below ``root``."""
    if _ON_WINDOWS.match(name):
        return UnusableRecord(
            where, "a path of a Windows machine; name files by their way from the table"
        )
    if _ADDRESS.match(name):
        return UnusableRecord(where, "an address of another machine; fetch the files first")
    try:
        plain = name if (root / name).exists() else name.replace("\\", "/")
        for start in dict.fromkeys((beside, root)):
            file = inside(root, str(start.relative_to(root) / plain), where)
            if file.exists() or file.is_symlink():
                return file
    except OutsideError:
        return UnusableRecord(where, PATH_OUT)
    except (OSError, ValueError):
        return UnusableRecord(where, "no such file")
    return files.find(plain, where)


class NamedFiles:
    """Files below a folder by their names, listed where one is first asked for."""

    def __init__(self, root: Path) -> None:
        """Files below ``root``."""
        self._root, self._known, self._named = root, dict[str, list[Path]](), set[int]()

    def name(self, file: Path) -> None:
        """Take note of a file that a row names."""
        if len(self._named) < MOST_LISTED:
            self._named.add(hash(file))

    def count_unnamed(self) -> int:
        """How many pictures no row names; 0 where there are too many files to say."""
        if len(self._named) >= MOST_LISTED:
            return 0
        try:
            found = islice(files_below(self._root), MOST_LISTED)
            return sum(
                hash(file) not in self._named
                for file in found
                if isinstance(file, Path) and file.suffix.lower() in NAMED
            )
        except SourceError:
            return 0

    def find(self, name: str, where: str) -> Path | UnusableRecord:
        """The one file that lies at the end of its way as ``name`` says, with any ending."""
        wanted = PurePosixPath(name)
        found = [one for one in self._called(wanted.name) if self._ends_so(one, wanted)]
        if len(found) > 1:
            return UnusableRecord(where, "several files of this name; name folders too")
        if not found:
            return UnusableRecord(where, "no such file")
        return inside(self._root, str(found[0].relative_to(self._root)), where)

    def _ends_so(self, file: Path, wanted: PurePosixPath) -> bool:
        folders = wanted.parts[:-1]
        last = file.parent.parts[len(file.parent.parts) - len(folders) :]
        return [one.casefold() for one in last] == [one.casefold() for one in folders]

    def _called(self, name: str) -> list[Path]:
        if not self._known:
            self._known[""] = []
            for file in islice(files_below(self._root), MOST_LISTED):
                if isinstance(file, Path) and not file.is_symlink():
                    for key in (
                        {file.name, file.stem} if file.suffix.lower() in NAMED else {file.name}
                    ):
                        self._known.setdefault(key.casefold(), []).append(file)
        return self._known.get(name.casefold(), [])


def _file_column(table: Path, row: dict[str, str], columns: SourceColumns) -> str:
    if columns.image and columns.image not in row:
        raise SourceError(f"{table}: has no column {columns.image!r}; there are {', '.join(row)}")
    found = usual_column(row, FILE_COLUMNS)
    if not (columns.image or found):
        raise SourceError(
            f"{table}: which column has the files? {naming('image')}; there are {', '.join(row)}"
        )
    return columns.image or found


def _table(folder: Path) -> Path:
    found = [folder / name for name in NAMES if (folder / name).is_file()][:1]
    found = found or _tables(folder)
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "no table"
        raise SourceError(
            f"{folder}: has {there}; give one manifest.csv, or name the table itself as the path"
        )
    return inside(folder, str(found[0].relative_to(folder)), str(found[0]))


def _tables(folder: Path) -> list[Path]:
    """Tables in a folder; where there are none, those in its folders."""
    here = sorted(one for one in folder.iterdir() if one.suffix.lower() in SUFFIXES)
    if here:
        return here
    below = [entry for one in sub_folders(folder)[:MOST_FOLDERS] for entry in entries(one)]
    return sorted(Path(one.path) for one in below if one.name.lower().endswith(SUFFIXES))


def _fits(path: Path) -> bool:
    """Whether a path is a table, or a folder with one of pictures, not a tree with one beside."""
    if path.is_file():
        return path.suffix.lower() in SUFFIXES
    named = [path / name for name in NAMES if (path / name).is_file()][:1]
    if not has_class_folders(path):
        return bool(named or _tables(path))
    tables = named or [one for one in path.iterdir() if one.suffix.lower() in SUFFIXES]
    return len(tables) == 1 and _names_pictures(path, tables[0])


def _names_pictures(root: Path, table: Path) -> bool:
    """Whether a cell of a table's first row is the name of a file below a folder."""
    row = next((row for _, row in read_rows(table) if row is not None), {})
    files = NamedFiles(root)
    return any(
        value and isinstance(_located(root, table.parent, value, "", files), Path)
        for value in row.values()
    )


MANIFEST = DatasetSpec(
    "Pictures with a manifest",
    format=SourceFormat(
        _fits,
        manifest_records,
        labels=("label", "class", "category", "diagnosis", "target"),
        users=("user", "user_id", "patient", "patient_id", "subject", "client_id", "owner"),
        in_folders=True,
    ),
)
FOLDER = DatasetSpec(
    "Labelled folder",
    format=SourceFormat(_fits, manifest_records, labels=(), users=(), in_folders=True),
)
"""The same, of which each attribute's column is named."""
