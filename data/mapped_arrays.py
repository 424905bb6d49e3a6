"""Arrays that stay on the disk: read where they are looked at, and let go of again.

A million images need not be in memory for a round that draws a few hundred of them.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedlens.data.npz_images import content_start

MAPPED_FROM = 2**25
"""Bytes of an array from which on it is mapped; smaller ones are read whole."""
_BLOCK = 2**24


def mapped_member(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[Any] | None:
    """A large array of a .npz file as it lies there, read-only; None where it has to be read whole.

    That is where it is small, compressed, of objects, or not in C order. The member's checksum is
    compared first; the file must not be changed as long as the array is used.

    Args:
        path: of the archive.
        archive: the same, open.
        name: of the member.

    Raises:
        zipfile.BadZipFile, ValueError, OSError, EOFError: the member is damaged.
        KeyError: there is none of that name.
    """
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < MAPPED_FROM:
        return None
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            return None
        shape, fortran, kind = read(stream)
        header = stream.tell()
        if fortran or kind.hasobject or not kind.itemsize:
            return None
        while stream.read(_BLOCK):
            pass  # at the end of it the checksum is compared
    if member.file_size != header + int(np.prod(shape, dtype=object)) * kind.itemsize:
        raise ValueError(f"{name} is longer or shorter than its header says")
    with path.open("rb") as file:
        start = content_start(file, member) + header
    return np.memmap(path, kind, "r", offset=start, shape=shape)


def blocks(array: NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of an array in C order, some at a time; those that are on the disk stay there."""
    flat = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    for start in range(0, len(flat), _BLOCK):
        yield flat[start : start + _BLOCK]
        let_go(array)


def let_go(array: NDArray[Any]) -> None:
    """Take a mapped array's pages out of this process's memory; others are as they were.

    Without it whatever was ever looked at counts as this process's, up to the whole file. An array
    that may be written to is left alone: its pages may be nowhere else.
    """
    base: Any = array
    read_only = True
    while isinstance(base, np.ndarray):
        read_only, base = read_only and not base.flags.writeable, base.base
    if read_only and isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)
