"""Structs of Thrift's compact protocol, read as its C++ reader reads them, whatever they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

TRUE, FALSE, BYTE, SHORT, INTEGER, LONG, DOUBLE, TEXT, LIST, SET, MAP, STRUCT = range(1, 13)
"""Kinds of fields, by their number in the protocol."""
Fields = dict[tuple[int, int], Any]
"""Values by number and kind: a known number of another kind is another field."""
Layout = Mapping[int, Union["Layout", int]]
"""The structs and lists that a reader knows: by the field's number the layout of the struct, or of
a list's elements, or the kind of a list's plain elements."""
MOST_NESTED = 32


class ThriftError(ValueError):
    """Bytes that are no such struct."""


class CompactReader:
    """Reads one struct after another.

    Numbers wrap round as they do in C++, and a known list's elements must be of its kind, so that
    nothing is read otherwise here than there.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, layout: Layout, depth: int = 0) -> Fields:
        """A struct's integers of 32 and 64 bits, texts, and what the layout knows.

        Raises:
            ThriftError: it is damaged.
            IndexError: it ends too early.
        """
        if depth > MOST_NESTED:
            raise ThriftError("structs lie too deep in each other")
        found, field = Fields(), 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            field = _wrapped(field + step if step else self._integer(32), 16)
            inner = layout.get(field)
            if kind == STRUCT and isinstance(inner, Mapping):
                found[field, kind] = self.struct(inner, depth + 1)
            elif kind == LIST and inner is not None:
                found[field, kind] = self._list(inner, depth + 1)
            elif (value := self._value(kind, depth + 1)) is not None:
                found[field, kind] = value
        return found

    def _list(self, inner: Layout | int, depth: int) -> list[Any]:
        count, kind = self._list_head()
        wanted = inner if isinstance(inner, int) else STRUCT
        if count and kind != wanted:
            raise ThriftError(f"a list is of kind {kind} in place of {wanted}")
        if isinstance(inner, int):
            return [self._value(kind, depth) for _ in range(count)]
        return [self.struct(inner, depth) for _ in range(count)]

    def _value(self, kind: int, depth: int) -> int | bytes | None:
        """An integer or a text; None of anything else, which is gone past."""
        if kind in (INTEGER, LONG):
            return self._integer(32 if kind == INTEGER else 64)
        if kind == TEXT:
            return self._bytes(self._unsigned())
        if kind in (LIST, SET):
            count, inner = self._list_head()
            self._pass(count, (inner,), depth)
        elif kind == MAP:
            count = self._unsigned()
            kinds = self._byte() if count else 0
            self._pass(count, (kinds >> 4, kinds & 15), depth)
        elif kind == STRUCT:
            self.struct({}, depth)
        elif kind == SHORT:
            self._unsigned()
        elif kind in (BYTE, DOUBLE):
            self._bytes(1 if kind == BYTE else 8)
        elif kind not in (TRUE, FALSE):
            raise ThriftError(f"there is no kind {kind} of fields")
        return None

    def _pass(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        """Go past elements; a truth value is a byte among them, and in its field's kind else."""
        if depth > MOST_NESTED:
            raise ThriftError("lists lie too deep in each other")
        for _ in range(count):
            for kind in kinds:
                self._value(BYTE if kind in (TRUE, FALSE) else kind, depth + 1)

    def _list_head(self) -> tuple[int, int]:
        """How many elements a list has, and of which kind."""
        head = self._byte()
        count = head >> 4
        return (self._unsigned() if count == 15 else count), head & 15

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _bytes(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self._data):
            raise IndexError("a value ends too early")
        return self._data[self.place - count : self.place]

    def _unsigned(self, bits: int = 32) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value & ((1 << bits) - 1)
        raise ThriftError("a number does not end")

    def _integer(self, bits: int) -> int:
        """A number with a sign, zigzag."""
        value = self._unsigned(bits)
        return (value >> 1) ^ -(value & 1)


def _wrapped(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half
