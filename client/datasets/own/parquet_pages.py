"""What a Parquet file unpacks to by its pages' own account, read before any page is unpacked.

The footer says so too, and may say less than is there: a reader makes room for what each page's
header says. Headers are structs of Thrift's compact protocol (PageHeader in Parquet's format).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

INTEGER, STRUCT = 5, 12
"""Kinds of fields that are looked at: of 32 bits, and nested ones."""
KIND, UNPACKED, PACKED = (1, INTEGER), (2, INTEGER), (3, INTEGER)
"""Fields of a page's header: what page it is, its bytes without and with compression."""
VALUES_OF = {0: (5, STRUCT), 3: (8, STRUCT)}
"""The nested struct of the two kinds of pages of values; its first field is how many there are."""
FIRST_READ, LARGEST_HEADER = 1 << 12, 1 << 24
MOST_PAGES = 1 << 20
"""Of a column in a row group."""
MOST_NESTED = 8


@dataclass(frozen=True)
class UnpackedColumn:
    """What a column of a row group comes to.

    Attributes:
        size: bytes of its pages without compression, by the pages or the footer, whichever is more.
        values: in these pages, or by the footer. A run of equal ones takes next to no bytes.
    """

    size: int
    values: int


def unpacked_groups(path: Path, metadata: Any) -> Iterator[list[UnpackedColumn]]:
    """The columns of each row group in turn.

    Args:
        path: the file.
        metadata: what pyarrow read of its footer.

    Raises:
        pyarrow.ArrowInvalid: a header is damaged, or a column has too many pages.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            yield [_column(stream, group.column(place)) for place in range(group.num_columns)]


def _column(stream: IO[bytes], column: Any) -> UnpackedColumn:
    """Follow a column's pages as pyarrow does: until there are as many values as are wanted."""
    from pyarrow import ArrowInvalid

    start, words = column.data_page_offset, column.dictionary_page_offset
    if words and 0 < words < start:
        start = words
    end = start + column.total_compressed_size
    size = values = pages = 0
    while values < column.num_values and start < end:
        fields, length = _header(stream, start, end)
        unpacked, packed, pages = fields.get(UNPACKED, -1), fields.get(PACKED, -1), pages + 1
        if unpacked < 0 or packed < 0 or pages > MOST_PAGES:
            raise ArrowInvalid("the header of a page is damaged")
        size, start = size + length + unpacked, start + length + packed
        values += _values(fields)
    return UnpackedColumn(max(size, column.total_uncompressed_size), max(values, column.num_values))


def _values(fields: dict[tuple[int, int], int]) -> int:
    """How many values a page has; 0 of a dictionary or an index."""
    place = VALUES_OF.get(fields.get(KIND, -1))
    return 0 if place is None else max(0, fields.get(place, 0))


def _header(stream: IO[bytes], start: int, end: int) -> tuple[dict[tuple[int, int], int], int]:
    """A page's header, and how many bytes it is long."""
    from pyarrow import ArrowInvalid

    asked = FIRST_READ
    while asked <= LARGEST_HEADER:
        stream.seek(start)
        reader = _Compact(stream.read(min(asked, end - start)))
        try:
            return reader.struct(), reader.place
        except IndexError:
            asked *= 16 if asked < end - start else LARGEST_HEADER
    raise ArrowInvalid("a page has no header that ends")


class _Compact:
    """Reads structs of Thrift's compact protocol, and wraps numbers round as its C++ reader does.

    What is read past the end is an IndexError.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, depth: int = 0) -> dict[tuple[int, int], int]:
        """Integers by number and kind of their field; of a nested struct, its first integer."""
        from pyarrow import ArrowInvalid

        found, field = dict[tuple[int, int], int](), 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            field = _signed(field + step if step else self._number(), 16)
            if kind == STRUCT and depth < MOST_NESTED:
                found[field, kind] = self.struct(depth + 1).get((1, INTEGER), 0)
            elif kind == INTEGER:
                found[field, kind] = self._number()
            elif kind in SKIPPED:
                SKIPPED[kind](self)
            else:
                raise ArrowInvalid("the header of a page is damaged")
        return found

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                break
        return value

    def _number(self) -> int:
        """A number of 32 bits, zigzag."""
        value = self._varint() & 0xFFFFFFFF
        return (value >> 1) ^ -(value & 1)

    def skip(self, count: int) -> None:
        """Go on by some bytes, which must be there."""
        self.place += count
        if self.place > len(self._data):
            raise IndexError

    def skip_bytes(self) -> None:
        """Go on past a text."""
        self.skip(self._varint())


SKIPPED = {
    1: lambda _: None,
    2: lambda _: None,
    3: lambda reader: reader.skip(1),
    4: _Compact._varint,
    6: _Compact._varint,
    7: lambda reader: reader.skip(8),
    8: _Compact.skip_bytes,
}
"""How to go past truth values, a byte, integers, a float, and texts. A header has no lists."""


def _signed(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half
