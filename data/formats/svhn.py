"""SVHN's cropped digits: MATLAB 5 files with pictures ``X`` [32, 32, 3, n] and labels ``y`` [n, 1].

Only what these files have is read: numeric arrays, packed or not. No object of a MATLAB file is
ever made.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from fedlens.data.formats.records import (
    Found,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    part_of,
    reason,
)
from fedlens.data.formats.unpacking import BLOCK, BoundedReader

HEADER = 128
INT8, UINT8, INT32, UINT32, DOUBLE, MATRIX, COMPRESSED = 1, 2, 5, 6, 9, 14, 15
NUMBERS: dict[int, np.dtype[Any]] = {UINT8: np.dtype("u1"), DOUBLE: np.dtype("<f8")}
SHAPE = (32, 32, 3)
DIGITS = tuple("0123456789")
LONGEST_NAME = 64


def svhn_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of ``train_32x32.mat`` and ``test_32x32.mat`` of a folder, or of one such file.

    Pictures are unpacked to a nameless file on the disk. Values: ``label`` (a zero is 10 in the
    file).

    Raises:
        SourceError: a file is missing, damaged or laid out otherwise.
    """
    files = [path] if path.is_file() else sorted(path.glob("*_32x32.mat"))
    if not files:
        raise SourceError(f"{path}: has no train_32x32.mat; fetch the cropped digits of SVHN")
    for file in files:
        yield from _file(file)


def _file(path: Path) -> Iterator[Found]:
    try:
        with tempfile.TemporaryFile() as kept:
            arrays = _arrays(path, kept)
            pictures, labels = arrays.get("X"), arrays.get("y")
            if pictures is None or labels is None or pictures.dtype != np.uint8:
                raise SourceError(f"{path}: lacks X (bytes) or y; fetch the file again")
            if pictures.ndim != 4 or pictures.shape[:3] != SHAPE:
                raise SourceError(f"{path}: X is {pictures.shape}, not (32, 32, 3, n)")
            if labels.size != pictures.shape[3]:
                raise SourceError(f"{path}: has {pictures.shape[3]} pictures, {labels.size} labels")
            for row, label in enumerate(labels.reshape(-1)):
                values = {"label": str(int(label) % 10) if 0 <= label <= 10 else str(label)}
                picture = np.asarray(pictures[:, :, :, row])
                yield SourceRecord(f"{path.name} row {row}", picture, values, part_of(path.name))
    except (OSError, ValueError, struct.error, EOFError, zlib.error, OverflowError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"{path}: no readable MATLAB 5 file ({reason(error)}); fetch it again"
        ) from None


def _arrays(path: Path, kept: IO[bytes]) -> dict[str, NDArray[Any]]:
    """Arrays by name, mapped from ``kept``, into which their bytes go."""
    found = {}
    with path.open("rb") as file:
        head = file.read(HEADER)
        if len(head) < HEADER or head[124:128] != b"\x00\x01IM":
            raise ValueError("not MATLAB 5 in little-endian order")
        while tag := file.read(8):
            kind, size = struct.unpack("<2I", tag)
            after = file.tell() + size
            if kind == COMPRESSED:
                stream = BoundedReader(cast(IO[bytes], _Inflated(file, size)), path)
                inner, _ = struct.unpack("<2I", _exactly(stream, 8))
                name, array = _matrix(stream, inner, kept)
            else:
                name, array = _matrix(BoundedReader(file, path), kind, kept)
            found[name] = array
            file.seek(after)
    return found


class _Inflated:
    """A packed element's bytes as they are unpacked, a block at a time."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left, self._unpack = file, size, zlib.decompressobj()
        self._ready = b""

    def read(self, size: int) -> bytes:
        while len(self._ready) < size:
            packed = self._unpack.unconsumed_tail or self._file.read(min(BLOCK, self._left))
            if not packed:
                break
            if not self._unpack.unconsumed_tail:
                self._left -= len(packed)
            self._ready += self._unpack.decompress(packed, BLOCK)
        block, self._ready = self._ready[:size], self._ready[size:]
        return block


def _matrix(stream: BoundedReader, kind: int, kept: IO[bytes]) -> tuple[str, NDArray[Any]]:
    if kind != MATRIX:
        raise ValueError(f"an element of kind {kind} in place of an array")
    flags = _small(stream, UINT32, 8)
    if flags[0] > 15 or flags[0] < 6:
        raise ValueError("an array of no numbers")
    shape = struct.unpack(f"<{len(raw) // 4}i", raw) if (raw := _small(stream, INT32, 64)) else ()
    name = _small(stream, INT8, LONGEST_NAME).decode("ascii", "replace")
    kind, size, inside = _tag(stream)
    if kind not in NUMBERS or min(shape, default=0) < 0:
        raise ValueError(f"numbers of kind {kind}")
    dtype = NUMBERS[kind]
    if size != dtype.itemsize * int(np.prod(shape, dtype=object)):
        raise ValueError(f"{size} bytes for an array of {shape}")
    if not size:
        return name, np.zeros(shape, dtype)
    start = kept.seek(0, 2)
    kept.write(b"\0" * (-start % 8))
    start = kept.tell()
    kept.write(inside[:size])
    left = size - len(inside[:size])
    while left:
        block = _exactly(stream, min(BLOCK, left))
        kept.write(block)
        left -= len(block)
    kept.flush()
    mapped = np.memmap(kept, dtype, "r", offset=start, shape=shape, order="F")
    return name, mapped


def _tag(stream: BoundedReader) -> tuple[int, int, bytes]:
    """A data element's kind and bytes, and these where they stand in the tag itself."""
    raw = _exactly(stream, 8)
    kind, size = struct.unpack("<2I", raw)
    if kind >> 16:
        return kind & 0xFFFF, kind >> 16, raw[4:]
    return kind, size, b""


def _small(stream: BoundedReader, wanted: int, most: int) -> bytes:
    """The bytes of a small element of a known kind."""
    kind, size, inside = _tag(stream)
    if kind != wanted or size > most or (inside and size > 4):
        raise ValueError(f"an element of kind {kind} and {size} bytes")
    if inside:
        return inside[:size]
    return _exactly(stream, size + -size % 8)[:size]


def _exactly(stream: BoundedReader, size: int) -> bytes:
    block = stream.read(size)
    if len(block) != size:
        raise EOFError("it ends too soon")
    return block


def _fits(path: Path) -> bool:
    if path.is_file():
        return path.suffix.lower() == ".mat"
    return next(path.glob("*_32x32.mat"), None) is not None


SVHN = SourceFormat("SVHN", _fits, svhn_records, classes=DIGITS)
