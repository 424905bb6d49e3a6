"""What the batches of an Arrow stream unpack to by their own account, before any is unpacked.

A batch says where its buffers lie, and a compressed buffer says first how large it was; a reader
makes room for that. Messages are flat buffers (Message.fbs and Schema.fbs of Arrow's format).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WORDS, BATCH = 2, 3
"""Kinds of messages with buffers: a dictionary's, which holds a batch, and a batch itself."""
AS_IT_IS = -1
"""What a buffer says that is not compressed though others of its batch are."""


@dataclass(frozen=True)
class DeclaredBatch:
    """What a batch, or a dictionary's words, come to.

    Attributes:
        unpacked: bytes of its compressed buffers without compression; 0 where none is compressed,
            for the others are read where they lie.
        largest: bytes of the largest buffer.
        values: rows, or values within lists, whichever are more. Some kinds take no bytes.
    """

    unpacked: int
    largest: int
    values: int


def declared_batches(source: Any) -> Iterator[DeclaredBatch]:
    """The batches and dictionaries of a stream in turn.

    Args:
        source: a file of pyarrow's at its beginning.

    Raises:
        pyarrow.ArrowInvalid: a message is damaged.
    """
    import pyarrow

    for message in pyarrow.ipc.MessageReader.open_stream(source):
        try:
            found = _declared(memoryview(message.metadata), message.body)
        except (struct.error, ValueError) as error:
            raise pyarrow.ArrowInvalid(f"a message is damaged ({error})") from None
        if found is not None:
            yield found


def _declared(metadata: memoryview, body: Any) -> DeclaredBatch | None:
    message = _Table(metadata, _number("<I", metadata, 0))
    kind, batch = message.byte(1), message.table(2)
    if kind == WORDS and batch is not None:
        batch = batch.table(1)
    if kind not in (WORDS, BATCH) or batch is None:
        return None
    values = max([batch.long(0), *(length for length, _ in batch.pairs(1))])
    sizes = [size for _, size in batch.pairs(2)]
    packed = [] if batch.table(3) is None else [_unpacked(body, *one) for one in batch.pairs(2)]
    if min([values, *sizes, *packed]) < 0:
        raise ValueError("a size below zero")
    return DeclaredBatch(sum(packed), max([*sizes, *packed], default=0), values)


def _unpacked(body: Any, start: int, size: int) -> int:
    """How large a compressed buffer says that it was."""
    if size == 0:
        return 0
    stated = _number("<q", memoryview(body), start)
    return size if stated == AS_IT_IS else stated


def _number(form: str, data: memoryview, place: int) -> int:
    if place < 0:
        raise ValueError("a place before the beginning")
    return int(struct.unpack_from(form, data, place)[0])


class _Table:
    """A table of a flat buffer, its fields by number; pyarrow has checked its form before."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - _number("<i", data, place)

    def _field(self, number: int) -> int:
        """Where a field lies; 0 where it is not there."""
        at = 4 + 2 * number
        if at >= _number("<H", self._data, self._fields):
            return 0
        step = _number("<H", self._data, self._fields + at)
        return self._place + step if step else 0

    def byte(self, number: int) -> int:
        """A field of one byte; 0 where it is not there."""
        place = self._field(number)
        return _number("<B", self._data, place) if place else 0

    def long(self, number: int) -> int:
        """A field of 64 bits; 0 where it is not there."""
        place = self._field(number)
        return _number("<q", self._data, place) if place else 0

    def table(self, number: int) -> _Table | None:
        """A field that is a table."""
        place = self._field(number)
        return _Table(self._data, place + _number("<I", self._data, place)) if place else None

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A field that is a list of two numbers of 64 bits each."""
        place = self._field(number)
        if place:
            start = place + _number("<I", self._data, place)
            for item in range(_number("<I", self._data, start)):
                at = start + 4 + 16 * item
                yield _number("<q", self._data, at), _number("<q", self._data, at + 8)
