"""Tables of text, from CSV and Parquet: a manifest of pictures, or series."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.data.labelled.parquet_pages import UnpackedColumn, unpacked_groups
from fedlens.privatizers.private_data import PrivateDataError

if TYPE_CHECKING:
    import pyarrow.parquet

SUFFIXES = (".csv", ".parquet")
MOST_BYTES = 2**30
"""Of a file, of what a Parquet file says that it unpacks to, and of a table's different texts."""
MOST_ROWS = 5_000_000
MOST_CELLS = 2**27
"""Rows times columns: a column of one value packs to next to nothing."""
ROWS_AT_ONCE, BYTES_AT_ONCE = 1024, 1 << 28
"""Of what is unpacked of a Parquet file. A value may be as large as its column in a row group."""


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
    with _readable(path):
        if path.stat().st_size > MOST_BYTES:
            raise PrivateDataError(f"{path}: is over 1 GiB; split it, or leave columns out")
        if path.suffix.lower() == ".parquet":
            _check_parquet(path)
        names, rows = _opened(path)
        kept: list[list[str]] = []
        held = _Texts(path)
        for line, row in rows:
            if len(row) != len(names):
                raise PrivateDataError(
                    f"{path}: line {line} has {len(row)} values for {len(names)} names; mend it"
                )
            kept.append([held.one(text) for text in row])
            _check_rows(path, len(kept))
            _check_cells(path, len(kept), len(names))
    if not kept:
        raise PrivateDataError(f"{path}: has no rows under its line of names; add some")
    return TextTable(path, {name: [row[at] for row in kept] for at, name in enumerate(names)})


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, str] | None]]:
    """The rows of such a file one at a time, each with its line (or row, from 1, of Parquet).

    A row with another number of values than there are names is None.

    Raises:
        PrivateDataError: as `read_table`, but for the file's size.
    """
    with _readable(path):
        names, rows = _opened(path)
        for line, row in rows:
            yield line, dict(zip(names, row, strict=True)) if len(row) == len(names) else None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    import pyarrow

    if path.suffix.lower() not in SUFFIXES:
        raise PrivateDataError(f"{path}: a table is a file .csv or .parquet; give such a one")
    try:
        yield
    except pyarrow.ArrowException as error:
        raise PrivateDataError(
            f"{path}: no readable Parquet file ({_first_line(error)}); write it anew"
        ) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PrivateDataError(
            f"{path}: no readable table ({_first_line(error)}); write it anew as CSV in UTF-8 or "
            "as Parquet"
        ) from error


def _opened(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Names of columns, and the rows with their lines; blanks around values are gone."""
    rows = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    names = next(rows)[1]
    _check_names(path, names)
    return names, rows


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        lines = csv.reader(stream)
        yield 1, [name.strip() for name in next(lines, [])]
        for row in lines:
            if row:
                yield lines.line_num, [value.strip() for value in row]


def _parquet(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Columns of plain values; lists and structures are left out."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        plain, groups = _plain(file), list(unpacked_groups(path))
    at_once = _rows_at_once(path, groups)
    # pyarrow makes no dictionary of texts that are stored as differences.
    deltas = {column.name for group in groups for column in group if column.deltas}
    texts = [one.name for one in plain if _is_text(one.type) and one.name not in deltas]
    names = [one.name for one in plain]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        yield 0, names
        place = 0
        for batch in file.iter_batches(batch_size=at_once, columns=names):
            for row in zip(*(_texts(column) for column in batch.columns), strict=True):
                place += 1
                yield place, list(row)


def _plain(file: pyarrow.parquet.ParquetFile) -> list[pyarrow.Field]:
    import pyarrow

    return [one for one in file.schema_arrow if not pyarrow.types.is_nested(one.type)]


def _rows_at_once(path: Path, groups: list[list[UnpackedColumn]]) -> int:
    """How many rows to read at a time, by the file's own account; its row groups may not be large.

    The footer of a file may say less than its pages, so both are asked.
    """
    largest = 1
    for number, columns in enumerate(groups):
        if sum(column.size for column in columns) > MOST_BYTES:
            raise PrivateDataError(
                f"{path}: its row group {number} unpacks to over 1 GiB; write the file anew with "
                "smaller ones (row_group_size=10000)"
            )
        largest = max(largest, *(column.size for column in columns), 1)
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // largest))


def _check_parquet(path: Path) -> None:
    """Judge sizes by the file's own account, before anything is unpacked."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        rows, columns = file.metadata.num_rows, len(_plain(file))
    _check_rows(path, rows)
    _check_cells(path, rows, columns)
    if sum(column.size for group in unpacked_groups(path) for column in group) > MOST_BYTES:
        raise PrivateDataError(f"{path}: unpacks to over 1 GiB; split it, or leave columns out")


def _is_text(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    tests = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(test(kind) for test in tests)


class _Texts:
    """Texts of a table, each held once however often it comes."""

    def __init__(self, path: Path) -> None:
        self._path, self._held, self._size = path, dict[str, str](), 0

    def one(self, text: str) -> str:
        """The text's one object.

        Raises:
            PrivateDataError: all texts together are too large.
        """
        if (found := self._held.get(text)) is not None:
            return found
        self._size += len(text)
        if self._size > MOST_BYTES:
            raise PrivateDataError(
                f"{self._path}: its texts are over 1 GiB; split it, or leave columns out"
            )
        return self._held.setdefault(text, text)


def _texts(part: pyarrow.Array) -> list[str]:
    """Values as text; of a column that is kept as a dictionary each text is made once."""
    import pyarrow

    part.validate(full=True)  # places in the dictionary may lie outside it
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
