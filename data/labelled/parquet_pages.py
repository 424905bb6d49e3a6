"""What a Parquet file unpacks to by its pages' own account, read before any page is unpacked.

The footer says so too, and may say less than is there: a reader makes room for what each page's
header says. Both are structs of Thrift's compact protocol (FileMetaData and PageHeader in Parquet's
format). pyarrow's own account of a column ends the process where a damaged footer gives it
statistics that do not fit, so it is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedlens.data.labelled.thrift import (
    INTEGER,
    LIST,
    LONG,
    STRUCT,
    TEXT,
    CompactReader,
    Fields,
    Layout,
    ThriftError,
)

_CHUNK: Layout = {
    2: INTEGER, 3: TEXT, 8: {}, 12: {}, 13: {}, 16: {2: LONG, 3: LONG}, 17: {1: {}, 2: INTEGER},
}  # fmt: skip
_COLUMN: Layout = {3: _CHUNK, 8: {2: {1: TEXT}}}
_FOOTER: Layout = {2: {}, 4: {1: _COLUMN, 4: {}}, 5: {}, 7: {}}
_HEADER: Layout = {5: {4: {}, 5: {}}, 6: {}, 7: {}, 8: {8: {}}}
VALUES_OF = {0: (5, STRUCT), 3: (8, STRUCT)}
"""The nested header of the two kinds of pages with values; its first field is how many."""
DELTAS = (6, 7)
"""Encodings of texts as differences."""
FIRST_READ, LARGEST_HEADER, LARGEST_FOOTER = 1 << 12, 1 << 24, 1 << 24
MOST_PAGES = 1 << 20
"""Of a column in a row group."""


@dataclass(frozen=True)
class ColumnChunk:
    """A column in a row group, by the footer.

    Attributes:
        name: with the names of the columns that it is nested in, dots between.
        values: how many, each of a list.
        size: bytes of its pages without compression.
        packed: bytes as they lie in the file.
        start: place of its first page.
        deltas: whether texts may be stored as differences.
    """

    name: str
    values: int
    size: int
    packed: int
    start: int
    deltas: bool


@dataclass(frozen=True)
class UnpackedColumn:
    """What a column of a row group comes to.

    Attributes:
        name: as in `ColumnChunk`.
        size: bytes of its pages without compression, by the pages or the footer, whichever is more.
        values: in these pages, or by the footer. A run of equal ones takes next to no bytes.
        deltas: as in `ColumnChunk`.
    """

    name: str
    size: int
    values: int
    deltas: bool


def unpacked_groups(path: Path) -> Iterator[list[UnpackedColumn]]:
    """The columns of each row group in turn, of a file whose footer pyarrow could read.

    Raises:
        pyarrow.ArrowInvalid: footer or header are damaged or too large, or there are many pages.
        OSError: the file cannot be read.
    """
    from pyarrow import ArrowInvalid

    with path.open("rb") as stream:
        try:
            for group in row_groups(stream):
                yield [unpacked(stream, chunk) for chunk in group]
        except (ThriftError, IndexError) as error:
            raise ArrowInvalid(f"footer or pages are damaged: {error}") from None


def row_groups(stream: IO[bytes]) -> list[list[ColumnChunk]]:
    """The columns of each row group, by the footer."""
    end = stream.seek(0, 2) - 8
    stream.seek(max(0, end))
    size = int.from_bytes(stream.read(4), "little")
    if not 0 < size <= min(end, LARGEST_FOOTER):
        raise ThriftError(f"a footer of {size} bytes")
    stream.seek(end - size)
    footer = CompactReader(stream.read(size)).struct(_FOOTER)
    groups = footer.get((4, LIST), [])
    return [[_chunk(column) for column in group.get((1, LIST), [])] for group in groups]


def _chunk(column: Fields) -> ColumnChunk:
    fields: Fields = column.get((3, STRUCT), {})
    values, size, packed, start = (fields.get((number, LONG), -1) for number in (5, 6, 7, 9))
    words = fields.get((11, LONG), 0)
    if min(values, size, packed, start) < 0:
        raise ThriftError("a column without sizes")
    return ColumnChunk(
        name=b".".join(fields.get((3, LIST), [])).decode("utf-8", "replace"),
        values=values,
        size=size,
        packed=packed,
        start=words if 0 < words < start else start,
        deltas=not set(DELTAS).isdisjoint(fields.get((2, LIST), [])),
    )


def unpacked(stream: IO[bytes], chunk: ColumnChunk) -> UnpackedColumn:
    """Follow a column's pages as pyarrow does: until there are as many values as are wanted."""
    start, end = chunk.start, chunk.start + chunk.packed
    size = values = pages = 0
    while values < chunk.values and start < end:
        fields, length = _header(stream, start, end)
        content, packed = fields.get((2, INTEGER), -1), fields.get((3, INTEGER), -1)
        pages += 1
        if content < 0 or packed < 0 or pages > MOST_PAGES:
            raise ThriftError("a page without sizes, or too many pages")
        size, start = size + length + content, start + length + packed
        nested = VALUES_OF.get(fields.get((1, INTEGER), -1))
        values += max(0, fields.get(nested, {}).get((1, INTEGER), 0)) if nested else 0
    return UnpackedColumn(
        chunk.name, max(size, chunk.size), max(values, chunk.values), chunk.deltas
    )


def _header(stream: IO[bytes], start: int, end: int) -> tuple[Fields, int]:
    """A page's header, and how many bytes it is long."""
    asked = FIRST_READ
    while True:
        stream.seek(start)
        reader = CompactReader(stream.read(min(asked, end - start)))
        try:
            return reader.struct(_HEADER), reader.place
        except IndexError:
            if asked >= min(LARGEST_HEADER, end - start):
                raise ThriftError("a page's header does not end") from None
        asked *= 16
