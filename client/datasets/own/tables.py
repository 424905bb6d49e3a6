"""Tables of text, from CSV and Parquet: a manifest of pictures, or series."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from client.datasets.attributes.data import PrivateDataError

if TYPE_CHECKING:
    import pyarrow.parquet

SUFFIXES = (".csv", ".parquet")
MOST_BYTES = 2**30
"""Of a file, and of what a Parquet file says that it unpacks to."""
MOST_ROWS = 5_000_000
MOST_CELLS = 2**27
"""Rows times columns: a column of one value packs to next to nothing."""


@dataclass(frozen=True, eq=False)
class TextTable:
    """Columns of text, each as long as the others.

    Attributes:
        path: where they were read, named in errors.
        columns: values by name, without blanks around them; empty where there is none.
    """

    path: Path
    columns: dict[str, list[str]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def column(self, name: str, what: str) -> list[str]:
        """The column ``name``, which was asked for as ``what``.

        Raises:
            PrivateDataError: there is none.
        """
        if name not in self.columns:
            raise PrivateDataError(
                f"{self.path}: has no column {name!r}, which {what} names; choose one of "
                f"{', '.join(self.columns)}"
            )
        return self.columns[name]


def read_table(path: Path) -> TextTable:
    """A CSV file with a line of names, or a Parquet file.

    Raises:
        PrivateDataError: it is missing, damaged, of another kind, too large, or has no rows.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise PrivateDataError(f"{path}: a table is a file .csv or .parquet; give such a one")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise PrivateDataError(f"{path}: is over 1 GiB; split it, or leave columns out")
        columns = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PrivateDataError(
            f"{path}: no readable table ({_first_line(error)}); write it anew as CSV in UTF-8 or "
            "as Parquet"
        ) from error
    table = TextTable(path, columns)
    if not len(table):
        raise PrivateDataError(f"{path}: has no rows under its line of names; add some")
    return table


def _csv(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        lines = csv.reader(stream)
        names = [name.strip() for name in next(lines, [])]
        _check_names(path, names)
        rows: list[list[str]] = []
        for row in lines:
            if not row:
                continue
            if len(row) != len(names):
                raise PrivateDataError(
                    f"{path}: line {lines.line_num} has {len(row)} values for {len(names)} names; "
                    "mend it"
                )
            rows.append(row)
            _check_rows(path, len(rows))
            _check_cells(path, len(rows), len(names))
    return {name: [row[place].strip() for row in rows] for place, name in enumerate(names)}


def _parquet(path: Path) -> dict[str, list[str]]:
    """Columns of plain values; lists and structures are left out.

    Sizes are judged by the file's own account before anything is unpacked, and equal texts stay one
    object: a small file may stand for very many of them.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            plain = [one for one in file.schema_arrow if not pyarrow.types.is_nested(one.type)]
            names = [one.name for one in plain]
            _check_names(path, names)
            _check_parquet(path, file.metadata, len(names))
        texts = [one.name for one in plain if _is_text(one.type)]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            groups = [file.read_row_group(n, names) for n in range(file.num_row_groups)]
    except pyarrow.ArrowException as error:
        raise PrivateDataError(
            f"{path}: no readable Parquet file ({_first_line(error)}); write it anew"
        ) from error
    return {
        name: [text for group in groups for part in group[name].chunks for text in _texts(part)]
        for name in names
    }


def _check_parquet(path: Path, metadata: pyarrow.parquet.FileMetaData, columns: int) -> None:
    _check_rows(path, metadata.num_rows)
    _check_cells(path, metadata.num_rows, columns)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    if sum(group.total_byte_size for group in groups) > MOST_BYTES:
        raise PrivateDataError(f"{path}: unpacks to over 1 GiB; split it, or leave columns out")


def _is_text(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    tests = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(test(kind) for test in tests)


def _texts(part: pyarrow.Array) -> list[str]:
    """Values as text; of a column that is kept as a dictionary each text is made once."""
    import pyarrow

    if not pyarrow.types.is_dictionary(part.type):
        return [_text(value) for value in part.to_pylist()]
    words = [_text(value) for value in part.dictionary.to_pylist()]
    return ["" if place is None else words[place] for place in part.indices.to_pylist()]


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value).strip()


def _check_names(path: Path, names: Sequence[str]) -> None:
    if not names or any(not name for name in names) or len(set(names)) < len(names):
        raise PrivateDataError(
            f"{path}: its columns are {', '.join(names) or 'without names'}; the first line names "
            "each column, each differently"
        )


def _check_rows(path: Path, count: int) -> None:
    if count > MOST_ROWS:
        raise PrivateDataError(f"{path}: has over {MOST_ROWS} rows; split it")


def _check_cells(path: Path, rows: int, columns: int) -> None:
    if rows * columns > MOST_CELLS:
        raise PrivateDataError(
            f"{path}: has over {MOST_CELLS} values; split it, or leave columns out"
        )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
