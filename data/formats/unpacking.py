"""Packed files unpacked within limits: a small file can claim, and give, any amount."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from fedlens.data.formats.records import SourceError, reason

GZIP_MAGIC = b"\x1f\x8b"
LARGEST_RATIO = 400
"""Unpacked bytes a packed byte. Pictures in archives come to 1 or 2, blank ones of labels to 200;
gzip's most is 1,032."""
FREE_BYTES = 2**26
"""Below which no ratio is looked at."""
BLOCK = 2**20


class BoundedReader:
    """What is read of a packed stream, refused where it grows beyond all measure."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        """Read ``stream``, which unpacks ``path``."""
        self._stream, self._path = stream, path
        self._most = max(FREE_BYTES, LARGEST_RATIO * path.stat().st_size)
        self._read = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes.

        Raises:
            SourceError: it is damaged, or unpacks to over 400 times its size.
        """
        try:
            block = self._stream.read(size if size >= 0 else self._most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(
                f"{self._path}: cannot be unpacked ({reason(error)}); fetch it again"
            ) from None
        self._read += len(block)
        if self._read > self._most:
            raise SourceError(
                f"{self._path}: unpacks to over {LARGEST_RATIO} times its size, as no data does; "
                "unpack it yourself if you trust it"
            )
        return block


def is_gzip(path: Path) -> bool:
    """Whether a file begins as gzip does, whatever its name."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """A file's content as a seekable file on the disk: itself, or unpacked to one without a name.

    Raises:
        SourceError: it is missing or damaged, or unpacks to over 400 times its size.
    """
    try:
        packed = is_gzip(path)
        if not packed:
            with path.open("rb") as plain:
                yield plain
            return
        with gzip.open(path, "rb") as stream, tempfile.TemporaryFile() as whole:
            bounded = BoundedReader(cast(IO[bytes], stream), path)
            while block := bounded.read(BLOCK):
                whole.write(block)
            whole.flush()
            whole.seek(0)
            yield whole
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({reason(error)})") from None
