"""Tables of text, from CSV and Parquet: a manifest of pictures, or series."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedlens.data.isolated.process import IsolatedError, read_isolated
from fedlens.privatizers.private_data import PrivateDataError

SUFFIXES = (".csv", ".parquet")
MOST_BYTES = 2**30
"""Of a file, and of a table's different texts."""
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
    with _readable(path):
        if path.stat().st_size > MOST_BYTES:
            raise PrivateDataError(f"{path}: is over 1 GiB; split it, or leave columns out")
        names, rows = _opened(path)
        kept: list[list[str]] = []
        held = _Texts(path)
        for line, row in rows:
            if len(row) != len(names):
                raise PrivateDataError(
                    f"{path}: line {line} has {len(row)} values for {len(names)} names; fix it"
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
    if path.suffix.lower() not in SUFFIXES:
        raise PrivateDataError(f"{path}: a table is a file .csv or .parquet; give such a one")
    try:
        yield
    except IsolatedError as error:
        raise PrivateDataError(
            f"{path}: no readable Parquet file ({error}); write it anew"
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
    pieces = read_isolated("fedlens.data.isolated.arrow:read_texts", path)
    yield 0, next(pieces)[0]["names"]
    place = 0
    for said, _ in pieces:
        columns = [
            ["" if at is None else one["words"][at] for at in one["places"]]
            for one in said["columns"]
        ]
        for row in zip(*columns, strict=True):
            place += 1
            yield place, list(row)


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
