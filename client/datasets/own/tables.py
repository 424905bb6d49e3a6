"""Tables of text, from CSV and Parquet: a manifest of pictures, or series."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from client.datasets.attributes.data import PrivateDataError

SUFFIXES = (".csv", ".parquet")
MOST_BYTES = 2**30
MOST_ROWS = 5_000_000


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
    return {name: [row[place].strip() for row in rows] for place, name in enumerate(names)}


def _parquet(path: Path) -> dict[str, list[str]]:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        _check_rows(path, parquet.ParquetFile(path).metadata.num_rows)
        found = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise PrivateDataError(
            f"{path}: no readable Parquet file ({_first_line(error)}); write it anew"
        ) from error
    _check_names(path, found.column_names)
    return {
        name: [_text(value) for value in found[name].to_pylist()] for name in found.column_names
    }


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


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
