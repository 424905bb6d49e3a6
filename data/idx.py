"""Reader for the IDX files MNIST and its relatives come in, gzipped or plain.

The header is a magic number (type 0x08 = unsigned byte, then the number of dimensions) and the
sizes, all big-endian 32-bit; the bytes of the array follow.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedlens.data.dataset import DatasetError, Images, Labels

IMAGES_MAGIC = 0x00000803
LABELS_MAGIC = 0x00000801
GZIP_MAGIC = b"\x1f\x8b"
LARGEST_BYTES = 1 << 30
"""A header asking for more is refused before memory is asked for."""
LARGEST_MAPPED = 1 << 40
"""The same of arrays that stay on the disk."""


def read_images(path: Path, sha256: str | None = None) -> Images:
    """Images of an IDX file as uint8 [n, 1, h, w].

    Args:
        path: gzipped or plain file.
        sha256: digest (hex) the unpacked file must have, or None.

    Raises:
        DatasetError: when the file is missing, truncated, too long, not an image file or not the
            one with that digest.
    """
    return _read(path, IMAGES_MAGIC, 3, sha256)[:, None]


def read_labels(path: Path, classes: int, sha256: str | None = None) -> Labels:
    """Labels of an IDX file as int64 [n], each in [0, classes); arguments as above.

    Raises:
        DatasetError: when the file is missing, damaged, or has a label out of range.
    """
    labels = _read(path, LABELS_MAGIC, 1, sha256)
    if len(labels) and int(labels.max()) >= classes:
        raise DatasetError(
            f"{path}: label {int(labels.max())} is outside 0..{classes - 1}; "
            "the file is damaged or of another data set: fetch it again"
        )
    return labels.astype(np.int64)


def _read(path: Path, magic: int, dimensions: int, sha256: str | None) -> NDArray[np.uint8]:
    try:
        with _open(path) as stream:
            head = stream.read(4 + 4 * dimensions)
            sizes = _sizes(path, head, magic, dimensions)
            body = stream.read(math.prod(sizes) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: cannot be read ({error}); fetch the file again") from error
    if len(body) != math.prod(sizes):
        found = f"only {len(body)}" if len(body) < math.prod(sizes) else "more"
        raise DatasetError(
            f"{path}: header promises {math.prod(sizes)} bytes {sizes}, the file holds {found}; "
            "it is truncated or damaged: fetch it again"
        )
    if sha256 is not None and hashlib.sha256(head + body).hexdigest() != sha256:
        raise DatasetError(
            f"{path}: unpacked, its SHA-256 is not {sha256}, so it is damaged or of another "
            "data set; fetch it again, or load your own data with npz:PATH"
        )
    return np.frombuffer(body, np.uint8).reshape(sizes)


def mapped_body(stream: IO[bytes], path: Path, magic: int, dimensions: int) -> NDArray[np.uint8]:
    """The array of an unpacked IDX file as it lies on the disk, memory-mapped and read-only.

    Args:
        stream: the file, at its beginning; it may have no name.
        path: what it is called in errors.
        magic: `IMAGES_MAGIC` or `LABELS_MAGIC`.
        dimensions: of the array.

    Raises:
        DatasetError: it is truncated, too long, or of another kind.
    """
    sizes = _sizes(path, stream.read(4 + 4 * dimensions), magic, dimensions, LARGEST_MAPPED)
    start, end = stream.tell(), stream.seek(0, os.SEEK_END)
    if end - start != math.prod(sizes):
        raise DatasetError(
            f"{path}: header promises {math.prod(sizes)} bytes {sizes}, the file holds "
            f"{end - start}; it is truncated or damaged: fetch it again"
        )
    if not math.prod(sizes):
        return np.zeros(sizes, np.uint8)
    return np.memmap(stream, np.uint8, "r", offset=start, shape=sizes)


def _open(path: Path) -> gzip.GzipFile | BinaryIO:
    """The file's contents, unpacked when it starts as gzip does (whatever its name)."""
    with path.open("rb") as plain:
        packed = plain.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if packed else path.open("rb")


def _sizes(
    path: Path, head: bytes, magic: int, dimensions: int, most: int = LARGEST_BYTES
) -> tuple[int, ...]:
    if len(head) >= 4 and head[:4] != struct.pack(">I", magic):
        kind = "images" if magic == IMAGES_MAGIC else "labels"
        raise DatasetError(
            f"{path}: starts with 0x{head[:4].hex()}, not 0x{magic:08x}, so it is no IDX file of "
            f"{kind}; check that the file has the right name"
        )
    if len(head) < 4 + 4 * dimensions:
        raise DatasetError(f"{path}: ends inside its header; fetch the file again")
    sizes = struct.unpack(f">{dimensions}I", head[4:])
    if math.prod(sizes) > most:
        raise DatasetError(
            f"{path}: header asks for {math.prod(sizes)} bytes; it is damaged: fetch it again"
        )
    return sizes
