"""Tables of text, from CSV, Excel, Parquet, ARFF and JSON: a manifest of pictures, or series."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedlens.data.isolated.process import IsolatedError, read_isolated
from fedlens.data.labelled.delimited import delimited_rows
from fedlens.data.labelled.in_place_of import in_place_of
from fedlens.privatizers.private_data import PrivateDataError

_ISOLATED = {
    ".xlsx": "fedlens.data.isolated.sheets:read_rows",
    ".xlsm": "fedlens.data.isolated.sheets:read_rows",
    ".arff": "fedlens.data.isolated.arff:read_rows",
    ".json": "fedlens.data.isolated.annotations:read_rows",
    ".jsonl": "fedlens.data.isolated.annotations:read_rows",
    ".ndjson": "fedlens.data.isolated.annotations:read_rows",
}
DELIMITED = (".csv", ".tsv")
SUFFIXES = (*DELIMITED, ".parquet", *_ISOLATED)
KINDS = ".csv, .tsv, .xlsx, .parquet, .arff, .json or .jsonl"
EXTRA = "pip install 'fedlens[files]'"
MOST_BYTES = 2**30
"""Of a file, and of a table's different texts."""
MOST_ROWS = 5_000_000
_NUMBER = re.compile(r"-?[\d.]+")
SHOWN = 20
"""Names of columns in a message."""
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
    """A CSV file with a line of names, or another table of `SUFFIXES`.

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
                    f"{path}: line {line} has another number of values than the {len(names)} names"
                    "; fix it"
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
        raise PrivateDataError(f"{path}: a table is a file {KINDS}; give such a one")
    try:
        yield
    except IsolatedError as error:
        raise PrivateDataError(_why_unread(path, str(error))) from error
    except (OSError, UnicodeError, csv.Error) as error:
        raise PrivateDataError(
            f"{path}: no readable table ({_first_line(error)}); write it anew as CSV in UTF-8 or "
            "as Parquet"
        ) from error


def _why_unread(path: Path, why: str) -> str:
    if path.suffix.lower() in (".xlsx", ".xlsm") and "openpyxl" in why:
        return f"{path}: to read Excel files takes openpyxl: {EXTRA}; or save it as CSV"
    kind = path.suffix[1:].capitalize() if path.suffix == ".parquet" else path.suffix[1:].upper()
    return f"{path}: no readable {kind} file ({why}); write it anew"


def _opened(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Names of columns, and the rows with their lines; blanks around values are gone.

    Columns without a name, as pandas writes its index, and empty values behind the last name, as
    a comma at each line's end gives, do not count.
    """
    if what := in_place_of(path):
        raise PrivateDataError(f"{path}: is {what}")
    rows = _parquet(path) if path.suffix.lower() == ".parquet" else _lines(path)
    names = next(rows, (1, []))[1]
    while names and not names[-1]:
        names = names[:-1]
    if not names and not path.stat().st_size:
        raise PrivateDataError(f"{path}: is empty; give a line of names, and a row a record")
    _check_names(path, names)
    wanted = [at for at, name in enumerate(names) if name]
    return [names[at] for at in wanted], _cut(rows, len(names), wanted)


def _cut(
    rows: Iterator[tuple[int, list[str]]], width: int, wanted: list[int]
) -> Iterator[tuple[int, list[str]]]:
    for line, row in rows:
        if len(row) > width and not any(row[width:]):
            row = row[:width]
        yield line, ([row[at] for at in wanted] if len(row) == width else [])


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of a table that is no Parquet file, the names first."""
    suffix = path.suffix.lower()
    if suffix not in _ISOLATED:
        yield from delimited_rows(path)
        return
    width = 0
    for said, _ in read_isolated(_ISOLATED[suffix], path):
        for line, row in said["rows"]:
            width = width or len(row)
            yield line, row + [""] * (width - len(row))  # a sheet's row ends at its last value


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
    named = [name for name in names if name]
    if not named or len(set(named)) < len(named):
        if len(named) > 2 and all(_NUMBER.fullmatch(name) for name in named):
            raise PrivateDataError(
                f"{path}: its first line has numbers, not names; put a line of names above it, "
                "such as label,pixel0,pixel1, and so on"
            )
        few = ", ".join(named[:SHOWN]) + (", ..." if len(named) > SHOWN else "")
        raise PrivateDataError(
            f"{path}: its columns are {few or 'without names'}; the first line names each column, "
            "each differently"
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
