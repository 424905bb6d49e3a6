"""Pictures that a table names, a row a picture, or that lie in the table's own cells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fedlens.data.formats.detection import is_of_boxes
from fedlens.data.formats.folders import has_class_folders
from fedlens.data.formats.layouts import sub_folders
from fedlens.data.formats.named_files import ENDINGS, NamedFiles, count_unnamed
from fedlens.data.formats.pixel_rows import PixelColumns, pixel_columns, pixel_stems, with_scale
from fedlens.data.formats.records import (
    TEST,
    TRAIN,
    VALIDATION,
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    alike,
    column_named,
    few_of,
    inside,
    is_value,
    naming,
    part_of,
)
from fedlens.data.labelled.delimited import WESTERN, encoding_of
from fedlens.data.labelled.tables import DELIMITED, SUFFIXES, read_rows
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateDataError

FILE_COLUMNS = ("file", "path", "filename", "file_name", "filepath", "image", "img", "image_path")
IDS = ("id", "image_id", "img_id", "image_name", "image_index", "imageid", "id_code", "isic_id")
"""Columns of names that may be files'."""
SHORT = 2
USUAL_STEM = "manifest"
PART_COLUMNS = ("part", "split", "subset", "usage")
ANNOTATIONS = "annotations"
"""COCO's folder of tables beside the folders of pictures."""
MOST_FOLDERS = 64
"""Folders that are looked into for a table."""
HEAD, LOOKED_AT = 2**16, 20
"""Bytes of a JSON file, and rows of a table, that say what it is."""
_BY_FILE = re.compile(
    rb'\{\s*"[^"]+\.(png|jpe?g|bmp|tiff?|webp|gif|dcm)"\s*:\s*["0-9]', re.IGNORECASE
)
"""The beginning of an object of labels by file."""
PARTS = (TRAIN, VALIDATION, TEST)
Row = dict[str, str]


@dataclass(frozen=True)
class _Table:
    """A table, the folder that its files lie below, and its part (empty: its rows say it)."""

    path: Path
    root: Path
    part: str = ""


def manifest_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """A table, or a folder with ``manifest.csv`` (or another ending), one table, or one a part.

    Files lie below the table's folder (`NamedFiles`); a path that leads out of it is left out and
    never opened. Where the table has columns of pixels (`pixel_columns`) they are the picture.
    Values are the table's columns; ``part`` or ``split`` is the part, unless the table's name or
    folder is one (``train.csv``, ``test/metadata.jsonl``).

    Raises:
        OutsideError: a table is a link that leads out of its folder.
        SourceError: there is no table, or several, or none of its columns has the files.
        PrivateDataError: a table cannot be read.
    """
    tables = [_Table(path, path.parent)] if path.is_file() else _tables(path)
    seen: set[int] = set()
    for table in tables:
        inside(table.root, str(table.path.relative_to(table.root)), str(table.path))
        files = NamedFiles(table.root, table.path, seen)
        yield from _records(path if path.is_dir() else path.parent, table, columns, files)
    unnamed = sum(count_unnamed(root, seen) for root in {one.root for one in tables} if seen)
    if unnamed:
        names = ", ".join(one.path.name for one in tables)
        columns.told(f"{unnamed} pictures below {path} are named by no row of {names}")


def _records(
    top: Path, table: _Table, columns: SourceColumns, files: NamedFiles
) -> Iterator[Found]:
    column, pixels, part_column = "", None, ""
    _tell(table.path, columns)
    title, line = str(table.path.relative_to(top)), 0
    for line, row in read_rows(table.path):
        where = f"{title} line {line}"
        if row is None:
            yield UnusableRecord(where, "another number of values than the table has names")
            continue
        if not column and pixels is None:
            pixels = _pixels(table.path, row, columns)
            part_column = column_named(row, PART_COLUMNS)
            column = "" if pixels else _file_column(table.path, row, columns, files)
        if pixels is not None:
            yield _of_pixels(where, row, pixels, _part(table, row, part_column))
            continue
        found = files.find(row[column], where)
        if isinstance(found, UnusableRecord):
            yield found
            continue
        files.note(found)
        yield SourceRecord(f"{where} ({row[column]})", found, row, _part(table, row, part_column))
    if not line:
        raise SourceError(f"{table.path}: has no rows under its line of names; add some")


def _tell(table: Path, columns: SourceColumns) -> None:
    """Say what is taken for granted of a table."""
    if table.suffix.lower() in DELIMITED and encoding_of(table) == WESTERN:
        columns.told(f"{table.name} is read as Windows-1252: save it as UTF-8 if names look wrong")
    if (
        table.suffix.lower() == ".json"
        and _head(table).startswith(b"{")
        and not (_BY_FILE.match(_head(table)))
    ):
        columns.told(
            f"{table.name} is COCO's: pictures are taken whole, each of the class of its boxes"
        )


def _pixels(table: Path, first: Row, columns: SourceColumns) -> PixelColumns | None:
    stem = "" if columns.image in first and not _is_long(first[columns.image]) else columns.image
    named = bool(columns.image) and not stem
    found = None if named else pixel_columns(first, stem)
    if found is None:
        return None
    return with_scale(table, found)


def _is_long(cell: str) -> bool:
    return len(cell.split()) > LOOKED_AT


def _of_pixels(where: str, row: Row, pixels: PixelColumns, part: str) -> Found:
    held = set(pixels.names)
    values = {name: value for name, value in row.items() if name not in held}
    try:
        return SourceRecord(where, pixels.picture(row), values, part)
    except ValueError:
        return UnusableRecord(where, "a pixel that is no number")


def _part(table: _Table, row: Row, column: str) -> str:
    said = row[column] if column else ""
    return table.part or (part_of(said) if is_value(said) else "")


def _file_column(table: Path, first: Row, columns: SourceColumns, files: NamedFiles) -> str:
    """The column of files: the one that is named, a usual one, or the only one that names a file.

    Raises:
        SourceError: there is none.
    """
    there = few_of(first)
    if is_of_boxes(first):
        raise SourceError(
            f"{table}: has a row a box, not a row a picture; write a row a picture with its class"
        )
    if any(name.lower().endswith(ENDINGS) for name in first):
        raise SourceError(
            f"{table}: its first line has values ({there}), not names; put a line of names above "
            "it, such as file,label,user"
        )
    if len(first) > 2 and all(re.fullmatch(r"[-\d.]+", name) for name in first):
        raise SourceError(
            f"{table}: its first line has numbers, not names; put a line of names above it, such "
            "as label,pixel0,pixel1, and so on"
        )
    if columns.image and columns.image not in first:
        raise SourceError(f"{table}: has no column {columns.image!r}; there are {there}")
    usual = columns.image or column_named(first, FILE_COLUMNS)
    if usual:
        return usual
    named = [name for name in first if _names_a_file(name, first[name], files)]
    if len(named) == 1:
        return named[0]
    stems = pixel_stems(first)
    hint = "".join(
        f", or pixels by what is before their number: --image {one}" for one in stems[:1]
    )
    raise SourceError(
        f"{table}: which column has the files? {naming('image')}{hint}; there are {there}"
    )


def _names_a_file(column: str, cell: str, files: NamedFiles) -> bool:
    """Whether a cell is a file's name; a short one, as classes have, in a column of ids alone."""
    may_be = len(cell) > SHORT or bool(column_named((column,), IDS))
    return may_be and isinstance(files.find(cell, ""), Path)


def _tables(folder: Path) -> list[_Table]:
    """The tables of a folder.

    Raises:
        SourceError: there is none, or several of which nothing says which counts.
    """
    here = _here(folder)
    chosen = [one for one in here if alike(one.stem) == USUAL_STEM]
    if len(chosen) == 1 or len(here) == 1:
        one = (chosen or here)[0]
        return [_Table(one, folder)]
    parts = [part_of(one.stem) for one in here]
    if here and len(set(parts)) == len(parts) and set(parts) <= set(PARTS):
        return [_Table(one, folder, part) for one, part in zip(here, parts, strict=True)]
    if not here and (found := _further_down(folder)):
        return found
    there = ", ".join(path.name for path in here[:LOOKED_AT]) or "no table"
    raise SourceError(
        f"{folder}: has {there}; give one manifest.csv, or name the table itself as the path"
    )


def _further_down(folder: Path) -> list[_Table]:
    """Tables of a folder's parts (``train``, ``test``), COCO's of instances, or the only one."""
    found = []
    if (folder / ANNOTATIONS).is_dir():
        coco = [one for one in _here(folder / ANNOTATIONS) if one.stem.startswith("instances")]
        every = coco or _here(folder / ANNOTATIONS)
        parts = [next((p for p in PARTS if p[:3] in one.stem.lower()), "") for one in every]
        if len(every) == 1 or len(set(parts)) == len(parts):
            return [_Table(one, folder, p) for one, p in zip(every, parts, strict=True)]
    for one in sorted(folder.iterdir()):
        if one.is_dir() and part_of(one.name) in PARTS:
            tables = _here(one)
            if len(tables) != 1:
                return []
            found.append(_Table(tables[0], one, part_of(one.name)))
    if found:
        return found
    below = [table for one in sub_folders(folder)[:MOST_FOLDERS] for table in _here(one)]
    return [_Table(below[0], folder)] if len(below) == 1 else []


def _here(folder: Path) -> list[Path]:
    """Tables of a folder, by name; JSON only where it has labels of pictures."""
    return sorted(
        one
        for one in folder.iterdir()
        if one.suffix.lower() in SUFFIXES
        and not one.name.lower().startswith((".", "~$", "sample_submission"))
        and one.is_file()
        and (one.suffix.lower() != ".json" or _has_labels(one))
    )


def _has_labels(path: Path) -> bool:
    """Whether a JSON file is COCO's, or a list of objects as Label Studio exports; by its head."""
    head = _head(path)
    if head.startswith(b"["):
        return head[1:].lstrip()[:1] == b"{"
    if _BY_FILE.match(head):
        return True
    return head.startswith(b"{") and (
        b'"images"' in head or b'"annotations"' in head or b'"categories"' in head
    ) and b'"user_data"' not in head  # fmt: skip


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD).lstrip(b"\xef\xbb\xbf \t\r\n")


def _fits(path: Path) -> bool:
    if path.is_file():
        if path.suffix.lower() == ".json":
            return _has_labels(path)
        return path.suffix.lower() in SUFFIXES
    try:
        tables = _tables(path)
    except SourceError:
        here = _here(path)
        return bool(here) and not has_class_folders(path)
    return not has_class_folders(path) or any(_names_pictures(one) for one in tables)


def _names_pictures(table: _Table) -> bool:
    """Whether a table that lies beside folders is of their pictures, and no remark beside them."""
    if table.path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        return True
    files = NamedFiles(table.root, table.path)
    try:
        for _, row in islice(read_rows(table.path), LOOKED_AT):
            if row is None:
                continue
            if column_named(row, FILE_COLUMNS) or pixel_columns(row):
                return True
            if any(_names_a_file(name, cell, files) for name, cell in row.items()):
                return True
    except PrivateDataError:
        return True  # its reader says what is wrong
    return False


_SPEC = SourceFormat(
    _fits,
    manifest_records,
    labels=("label", "labels", "class", "class_name", "category", "diagnosis", "target", "choice",
            "class_id", "classid"),
    users=("user", "user_id", "patient", "patient_id", "subject", "subject_id", "client_id",
           "owner"),
    in_folders=True,
)  # fmt: skip
MANIFEST = DatasetSpec("Pictures with a manifest", format=_SPEC)
FOLDER = DatasetSpec(
    "Labelled folder",
    format=SourceFormat(_fits, manifest_records, labels=(), users=(), in_folders=True),
)
"""The same, of which each attribute's column is named."""
