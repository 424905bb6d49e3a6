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
from threading import Lock, get_ident, local
from unittest.mock import patch

from sqlalchemy import Connection

from fedlens.store import StoreStatus, upgrade, upgrades
from fedlens.store.engine import Location, prepare_file
from fedlens.store.upgrades import _status as _compared
from fedlens.store.upgrades import head

_MAKING = Lock()


def _template() -> bytes:
    with _MAKING, stores_from_migrations():
        return _migrated()


@cache
def _migrated() -> bytes:
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


_copied = local()
"""``now``: whether this thread's upgrade began with a copy, which has the template's status."""


def _prepare(location: Location, *, create: bool) -> None:
    prepare_file(location, create=create)
    path = location.path
    _copied.now = create and path is not None and not path.exists()
    if _copied.now and path is not None:
        copy_template(path)


def _status(connection: Connection) -> StoreStatus:
    if _copied.now:
        return StoreStatus(head(), head(), [])
    return _compared(connection)


@contextlib.contextmanager
def stores_from_a_template() -> Iterator[None]:
    """Have `upgrade` begin with a copy where there is no file."""
    new = {"prepare_file": _prepare, "_status": _status}
    with patch.multiple(upgrades, **new):
        yield


@contextlib.contextmanager
def stores_from_migrations() -> Iterator[None]:
    """Have it begin with nothing again, as it does outside tests."""
    real = {"prepare_file": prepare_file, "_status": _compared}
    with patch.multiple(upgrades, **real):
        yield
