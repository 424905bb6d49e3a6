"""An array of an ``.npz`` file as it lies on the disk, however large it is."""

from __future__ import annotations

import shutil
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

LOCAL_HEADER = struct.Struct("<26xHH")
"""Of a zip member: the lengths of its name and of its extra field stand last."""


def unread(error: Exception) -> str:
    """Why NumPy did not read a file; without its advice to load what can run code."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "no NumPy file, or Python objects in it" if "pickle" in str(error) else str(error)


PLAUSIBLE, LARGEST_UNLOOKED = 100, 1 << 30


def packed_problem(path: Path) -> str | None:
    """Which member of an archive claims to unfold to far more than arrays do; None for none.

    Members up to 1 GiB, and those packed up to a hundred times, are taken as they are. What is no
    archive is for its reader to say.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return None
    for member in members:
        if member.file_size > max(LARGEST_UNLOOKED, PLAUSIBLE * member.compress_size):
            return (
                f"{member.filename} would unfold from {member.compress_size} to "
                f"{member.file_size} bytes: write it with numpy.savez, which does not compress"
            )
    return None


def mapped_member(path: Path, name: str) -> NDArray[Any]:
    """The array ``name`` of an archive, memory-mapped and read-only.

    A compressed one is first unpacked to a file without a name, which goes with the array; use
    ``numpy.savez``, which does not compress, to do without.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: it cannot be read.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type == zipfile.ZIP_STORED:
            with path.open("rb") as file:
                return _mapped(file, content_start(file, member))
        with archive.open(member) as packed, tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(packed, whole)
            return _mapped(whole, 0)


def content_start(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Where a member's content begins."""
    file.seek(member.header_offset)
    name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    return member.header_offset + LOCAL_HEADER.size + int(name) + int(extra)


def _mapped(file: IO[bytes], start: int) -> NDArray[Any]:
    file.seek(start)
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, columns_first, kind = read(file)
    if kind.hasobject:
        raise ValueError("an array of objects")
    if 0 in shape:
        return np.zeros(shape, kind)
    order = "F" if columns_first else "C"
    return np.memmap(file, kind, "r", offset=file.tell(), shape=shape, order=order)  # type: ignore[call-overload,no-any-return]
