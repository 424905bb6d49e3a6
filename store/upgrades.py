"""The schema's revision: bring a store to this version's, and say whether it is there.

Migrations lie in the package (``migrations/``), so an installed fedlens can upgrade a store. The
revision is kept in a table of its own name, beside which another program's Alembic may live.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, inspect, text

from fedlens.store.engine import VERSION_TABLE as VERSION_TABLE
from fedlens.store.engine import (
    Location,
    clear_errors,
    locate,
    make_engine,
    network_kind,
    prepare_file,
)
from fedlens.store.errors import StoreError, StoreVersionError
from fedlens.store.schema import Base

_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x6665646C656E73  # "fedlens": PostgreSQL's advisory lock, one upgrade at a time
_PATIENCE = 30.0
"""Seconds to wait for others to let go of an SQLite file."""
_ENVIRONMENT = Lock()  # Alembic's environment is a global of the process


@dataclass(frozen=True)
class StoreStatus:
    """How a store's schema stands to the one this version works with."""

    current: str | None
    """The store's revision; ``None`` where it has none."""
    head: str
    """This version's revision."""
    drift: list[str]
    """Differences between the tables there and those expected, in words; empty when as it ought
    to be."""

    @property
    def ok(self) -> bool:
        """Whether the store can be used as it is."""
        return self.current == self.head and not self.drift


def upgrade(url: str | Path) -> StoreStatus:
    """Make the store's tables, or bring them to this version's; all of it or nothing.

    SQLite's file and its folder are made where absent; PostgreSQL's database must exist. Safe to
    run from several threads and processes at once: they wait for each other.

    Args:
        url: ``sqlite:///path``, a path, or ``postgresql://...``.

    Raises:
        StoreVersionError: if a newer version of fedlens made the store.
        StoreError: if the place cannot be reached, or written, or is used by something else.
    """
    location = locate(url)
    prepare_file(location, create=True)
    with _connection(location, create=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        _check_upgradable(connection, location)
        if _context(connection).get_current_revision() != head():
            _migrate(connection)
        return _status(connection)


def check(url: str | Path) -> StoreStatus:
    """Compare a store's revision and tables with this version's; changes nothing.

    Raises:
        StoreError: if there is no store, or it cannot be reached.
    """
    location = locate(url)
    prepare_file(location, create=False)
    with _connection(location, create=False) as connection:
        return _status(connection)


def require_current(connection: Connection, location: Location) -> None:
    """Refuse a store of another revision.

    Raises:
        StoreVersionError: saying what to run.
    """
    current = _context(connection).get_current_revision()
    if current == head():
        _refuse_shared_memory(connection, location)
        return
    _check_known(current, location)
    has = "has no fedlens tables yet" if current is None else f"is at revision {current}"
    raise StoreVersionError(
        f"the store {location.shown} {has}, this fedlens works with {head()}: "
        f"run `fedlens db upgrade --store {location.shown}`{_hint(location)}"
    )


def _refuse_shared_memory(connection: Connection, location: Location) -> None:
    kind = network_kind(location.path) if location.path is not None else ""
    if kind and connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal":
        raise StoreError(
            f"the store {location.shown} lies on a network's file system ({kind}) and has a "
            "write-ahead log, whose index two machines do not share, so that labels would be lost: "
            f"move it to a local disk, use PostgreSQL, or run `fedlens db upgrade --store "
            f"{location.shown}`, which does without the log"
        )


@lru_cache(maxsize=1)
def head() -> str:
    """The revision this version works with."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise StoreError("fedlens is installed without its migrations: install it again")
    return revision


def migrations() -> Config:
    """Alembic's configuration; its commands need ``attributes["connection"]`` as well."""
    config = Config()
    # ConfigParser would read a lone % of a path as the start of a variable.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _hint(location: Location) -> str:
    return "" if location.path else " (with your user and password in the URL)"


def _check_known(revision: str | None, location: Location) -> None:
    try:
        _scripts().get_revision(revision or "head")
    except CommandError:
        raise StoreVersionError(
            f"the store {location.shown} is at revision {revision}, which this fedlens does not "
            "know: it was made by a newer one; update fedlens"
        ) from None


def _check_upgradable(connection: Connection, location: Location) -> None:
    current = _context(connection).get_current_revision()
    _check_known(current, location)
    present = set(inspect(connection).get_table_names())
    taken = sorted(present & set(Base.metadata.tables) if location.path is None else present)
    if current is None and set(taken) - {VERSION_TABLE}:
        raise StoreError(
            f"the store {location.shown} holds tables of something else ({', '.join(taken)}): "
            "give fedlens a database of its own"
        )


def _migrate(connection: Connection) -> None:
    config = migrations()
    config.attributes["connection"] = connection
    with _ENVIRONMENT:
        command.upgrade(config, "head")


@contextmanager
def _connection(location: Location, *, create: bool) -> Iterator[Connection]:
    """A connection in a transaction, with SQLite's foreign keys off so that tables can be moved."""
    engine = make_engine(location, create=create, foreign_keys=False)
    try:
        with clear_errors(location):
            if create and location.path:
                _choose_journal(engine.raw_connection(), location.path)
            writer = engine.execution_options(write=create)
            with writer.begin() as connection:
                yield connection
    finally:
        engine.dispose()


def _choose_journal(connection: Any, path: Path) -> None:
    """Have readers and a writer side by side by the write-ahead log, a lasting property of a file.

    Not on a network's file system: the log's index is memory that two machines do not share, and
    SQLite would lose what one of them wrote. There it keeps a rollback journal.

    SQLite's own waiting does not cover the switch, so it is tried again while others hold the file.
    """
    mode = "DELETE" if network_kind(path) else "WAL"
    cursor, until = connection.cursor(), time.monotonic() + _PATIENCE
    try:
        while not _switched(cursor, mode, last_try=time.monotonic() > until):
            time.sleep(0.02)
    finally:
        connection.close()


def _switched(cursor: Any, mode: str, *, last_try: bool) -> bool:
    try:
        cursor.execute(f"PRAGMA journal_mode = {mode}")
    except sqlite3.OperationalError:
        if last_try:
            raise
        return False
    return True


def _status(connection: Connection) -> StoreStatus:
    context = _context(connection)
    differences = compare_metadata(context, Base.metadata)
    return StoreStatus(
        context.get_current_revision(), head(), [_in_words(item) for item in differences]
    )


def _in_words(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(_in_words(item) for item in difference)
    return " ".join(str(getattr(part, "name", part)) for part in difference if part is not None)


def _ours(
    _object: object, _name: str | None, kind: str, reflected: bool, other: object | None
) -> bool:
    """Whether a difference concerns us: tables that only the database has are someone else's."""
    return not (kind == "table" and reflected and other is None)


def _context(connection: Connection) -> MigrationContext:
    options = {"version_table": VERSION_TABLE, "compare_type": True, "include_object": _ours}
    return MigrationContext.configure(connection, opts=options)


@lru_cache(maxsize=1)
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(migrations())
