"""Files that are either whole or not there, whatever happens to the process or the machine."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def write_durably(path: Path, content: bytes) -> None:
    """Write beside the target, flush to the disk, rename over it, flush the folder."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make renames and new names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def arrays_to_bytes(arrays: dict[str, NDArray[np.generic]]) -> bytes:
    """Named arrays in NumPy's zip format, without pickle."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """Named arrays of a file; nothing in it is executed."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
