"""Arrays of ``.npz`` files that stay on the disk: read where looked at, and let go of again.

A million images need not be in memory for a round that draws a few hundred of them.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MAPPED_FROM = 2**25
"""Bytes of an array from which on it is mapped where memory decides; smaller ones are read."""
_BLOCK = 2**24
_LOCAL_HEADER = struct.Struct("<26xHH")
"""Of a zip member: the lengths of its name and of its extra field stand last."""
PLAUSIBLE, LARGEST_UNLOOKED = 100, 1 << 30
"""Times and bytes that a member may unfold to without being looked at."""


def map_array(path: Path, name: str) -> NDArray[Any]:
    """The array ``name`` of an archive, memory-mapped and read-only.

    Its checksum is compared first, so that what was damaged on the disk is refused, and no array
    of other images is taken for it; the file must not be changed as long as the array is used. A
    compressed array is first unpacked to a file without a name, which goes with it; use
    ``numpy.savez``, which does not compress, to do without.

    Raises:
        OSError, ValueError, EOFError, zipfile.BadZipFile: it cannot be read, or is damaged.
        KeyError: there is none of that name.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        with archive.open(member) as stream:  # at whose end the checksum is compared
            if member.compress_type == zipfile.ZIP_STORED:
                while stream.read(_BLOCK):
                    pass
                with path.open("rb") as file:
                    return _mapped(file, _content_start(file, member), member.file_size)
            with tempfile.TemporaryFile() as whole:
                shutil.copyfileobj(stream, whole, _BLOCK)
                return _mapped(whole, 0, member.file_size)


def is_mappable(path: Path, name: str) -> bool:
    """Whether the array ``name`` of an archive is large and lies there uncompressed, in C order.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: it cannot be read.
        KeyError: there is none of that name.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size < MAPPED_FROM:
            return False
        with archive.open(member) as stream:
            _, columns_first, kind = _read_header(stream)
    return not columns_first and not kind.hasobject and kind.itemsize > 0


def _content_start(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    file.seek(member.header_offset)
    name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return member.header_offset + _LOCAL_HEADER.size + int(name) + int(extra)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type of the array that begins here."""
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(stream)
    return found


def _mapped(file: IO[bytes], start: int, size: int) -> NDArray[Any]:
    file.seek(start)
    shape, columns_first, kind = _read_header(file)
    if kind.hasobject:
        raise ValueError("an array of objects")
    if file.tell() - start + int(np.prod(shape, dtype=object)) * kind.itemsize != size:
        raise ValueError("an array that is longer or shorter than its header says")
    if 0 in shape:
        return np.zeros(shape, kind)
    order = "F" if columns_first else "C"
    return np.memmap(file, kind, "r", offset=file.tell(), shape=shape, order=order)  # type: ignore[call-overload,no-any-return]


def packed_problem(file: Path | IO[bytes]) -> str | None:
    """Why an archive claims to unfold to far more than arrays do; None where it does not.

    Up to 1 GiB of all members together, and those packed up to a hundred times, are taken as they
    are. What is no archive is for its reader to say.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return None
    odd = [m for m in members if m.file_size > PLAUSIBLE * m.compress_size]
    whole = sum(member.file_size for member in odd)
    if whole <= LARGEST_UNLOOKED:
        return None
    names, packed = ", ".join(m.filename for m in odd), sum(m.compress_size for m in odd)
    return (
        f"{names:.200} would unfold from {packed} to {whole} bytes: write it with numpy.savez, "
        "which does not compress"
    )


def unread(error: Exception) -> str:
    """Why NumPy did not read a file; without its advice to load what can run code."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "no NumPy file, or Python objects in it" if "pickle" in str(error) else str(error)


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
