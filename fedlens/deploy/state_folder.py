"""Where Flower keeps what it needs while it runs: in memory where it can, and gone afterwards."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlens.deploy.layout import DeployError

MEMORY = Path("/dev/shm")  # noqa: S108  (the folder is made for its owner alone, and checked)


@contextmanager
def ephemeral_folder(folder: Path, named: str) -> Iterator[Path]:
    """A folder that is empty now and gone when the context ends, for its owner alone (0700).

    What a process that was killed left behind is removed before anything new is written.

    Args:
        folder: the deployment's, from which the place is named.
        named: the ``state`` setting; empty for memory.

    Raises:
        DeployError: the place belongs to another user.
    """
    place = state_place(folder, named)
    _remove(place)
    try:
        place.mkdir(mode=0o700, parents=named != "")
    except FileExistsError:
        raise DeployError(f"{place} belongs to another user: set state in deploy.toml") from None
    try:
        yield place
    finally:
        _remove(place)


def state_place(folder: Path, named: str) -> Path:
    """Where the state of a deployment's folder lies."""
    if named:
        return (folder / named).absolute()
    memory = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    tag = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return memory / f"fedlens-{os.getuid()}-{tag}"


def wipe_state(folder: Path, named: str) -> None:
    """Remove what processes that were killed left, once none of the folder's runs."""
    _remove(state_place(folder, named))


def _remove(place: Path) -> None:
    try:
        status = place.lstat()
    except FileNotFoundError:
        return
    if status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode):
        shutil.rmtree(place, ignore_errors=True)
