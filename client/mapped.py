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

MAPPED_FROM = 2**25
"""Bytes of an array from which on it is mapped; smaller ones are read whole."""
_BLOCK = 2**24
_LOCAL_HEADER = 30
"""Bytes of a member's own header in a zip file, before its name and extra field."""


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
    start = _start_of(path, member) + header
    return np.memmap(path, kind, "r", offset=start, shape=shape)


def _start_of(path: Path, member: zipfile.ZipInfo) -> int:
    """Where a member's content begins in the file."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        local = file.read(_LOCAL_HEADER)
    name, extra = (int.from_bytes(local[at : at + 2], "little") for at in (26, 28))
    return member.header_offset + _LOCAL_HEADER + name + extra


def blocks(array: NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of an array in C order, some at a time; those that are on the disk stay there."""
    flat = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    for start in range(0, len(flat), _BLOCK):
        yield flat[start : start + _BLOCK]
        let_go(array)


def let_go(array: NDArray[Any]) -> None:
    """Take a mapped array's pages out of this process's memory; others are as they were.

    Without it whatever was ever looked at counts as this process's, up to the whole file.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)
