"""New SQLite stores as copies of a migrated one: migrating each takes a quarter of a second.

What migrations do is tested in ``tests/store``, where `upgrade` always begins with nothing.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import get_ident
from unittest.mock import patch

from server.store import upgrade, upgrades
from server.store.engine import Location, prepare_file


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory(prefix="fedlens-template-") as folder:
        path = Path(folder) / "store.db"
        assert upgrade(path).ok
        return path.read_bytes()


def copy_template(path: Path) -> None:
    """Put a migrated store where none is; one that came meanwhile stays."""
    made = path.with_name(f"{path.name}-{os.getpid()}-{get_ident()}")
    made.write_bytes(_template())
    with contextlib.suppress(FileExistsError):
        os.link(made, path)  # whole or not at all, however many do it at once
    made.unlink()


def _prepare(location: Location, *, create: bool) -> None:
    prepare_file(location, create=create)
    if create and location.path is not None and not location.path.exists():
        copy_template(location.path)


@contextlib.contextmanager
def stores_from_a_template() -> Iterator[None]:
    """Have `upgrade` begin with a copy where there is no file."""
    _template()
    with patch.object(upgrades, "prepare_file", _prepare):
        yield


@contextlib.contextmanager
def stores_from_migrations() -> Iterator[None]:
    """Have it begin with nothing again, as it does outside tests."""
    with patch.object(upgrades, "prepare_file", prepare_file):
        yield
