"""Tar archives of others, read by Python's `tarfile`, which believes what their headers say."""

from __future__ import annotations

import tarfile
from typing import IO

DAMAGED = (
    *(tarfile.TarError, OSError, EOFError, ValueError, OverflowError),
    *(IndexError, RecursionError),
)
"""What tarfile raises on damaged archives: also what Python's integers do on sizes that are none,
maps of sparse files that end, and headers before headers, which it reads by calling itself."""
MOST_HEADER = 1 << 20
"""Bytes of a long name, or of fields that go before a member; tarfile reads them at once."""
MOST_SIZE = 1 << 46
"""Of a member; more is no size that a disk has."""
MOST_EMPTY = 16
"""Reads at the end that may come back empty before reading on is given up."""

_LONG = frozenset(
    (
        *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
        *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    )
)


class CautiousMember(tarfile.TarInfo):
    """For ``tarfile.open(tarinfo=...)``: no header makes room for more than `MOST_HEADER` bytes."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> CautiousMember:
        """The member that a block of 512 bytes describes.

        Raises:
            tarfile.ReadError: its size is none that a disk has, or it is a header of over a MiB.
        """
        found: CautiousMember = super().frombuf(buf, encoding, errors)
        if not 0 <= found.size <= (MOST_HEADER if found.type in _LONG else MOST_SIZE):
            raise tarfile.ReadError(f"a member of {found.size} bytes is none of an archive's")
        return found


class EndingStream:
    """What tarfile reads as a stream, which ends: it would else skip a member that is not there."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._empty = stream, 0

    def read(self, size: int) -> bytes:
        """At most so many bytes.

        Raises:
            EOFError: the end was read past again and again.
        """
        found = self._stream.read(size)
        self._empty = 0 if found else self._empty + 1
        if self._empty > MOST_EMPTY:
            raise EOFError("it ends within a member")
        return found
