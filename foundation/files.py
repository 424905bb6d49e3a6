"""Files that are either whole or not there, whatever happens to the process or the machine."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

from fedlens.foundation.dates import set_file_date, today


def write_durably(
    path: Path, content: bytes, *, private: bool = False, day: date | None = None
) -> None:
    """Write beside the target, flush to the disk, rename over it, flush the folder.

    Args:
        path: the target; its folder must exist.
        content: all of it.
        private: give only its owner the right to read it.
        day: which the file says it was changed on, at midnight UTC and no finer; today by default.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # left by a process that died
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(part, flags, 0o600 if private else 0o666), "wb") as file:
        file.write(content)
        file.flush()
        set_file_date(file.fileno(), day or today())
        os.fsync(file.fileno())
    part.replace(path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make renames and new names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder_durably(folder: Path, *, private: bool = False) -> None:
    """Make a folder and the missing ones that it lies in; ``private``: all of them for its owner.

    A folder that is there keeps its mode.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    folder.mkdir(exist_ok=True)  # refuses what is there and no folder
    for path in missing:
        flush_folder(path.parent)
