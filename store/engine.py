"""From a URL or a path to a database engine, and database errors to one clear message.

SQLite is opened by path, with its write-ahead log so that the dashboard reads while a run writes;
PostgreSQL by ``postgresql://`` URL, through psycopg 3. Messages never hold a user's name, a
password or the values of a statement.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from fedlens.store.errors import StoreError

BUSY_SECONDS = 10
CONNECT_SECONDS = 10
VERSION_TABLE = "fedlens_version"
"""Holds the schema's revision."""

_SQLITE_HEADER = b"SQLite format 3\x00"


@dataclass(frozen=True)
class Location:
    """Where a store lies."""

    url: URL
    shown: str
    """The place in words, safe to print."""
    path: Path | None
    """The file, of SQLite."""


def locate(url: str | Path) -> Location:
    """Read ``sqlite:///path``, a bare path or a ``postgresql://`` URL; nothing is opened.

    Raises:
        StoreError: on another kind of URL, or one that cannot be read.
    """
    if isinstance(url, Path) or "://" not in url:
        return _locate_file(str(url))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Its own message may repeat pieces of the password.
        raise StoreError(
            "the store's URL cannot be read: give sqlite:///path, a path, or "
            "postgresql://user:password@host:port/database (with %-escapes in the password)"
        ) from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return _locate_file(parsed.database or "")
    if kind != "postgresql" or parsed.get_driver_name() != "psycopg":
        raise StoreError(
            f"a store of kind {parsed.drivername} is not supported: give sqlite:///path, a path, "
            "or postgresql://..."
        )
    return Location(_with_timeout(parsed), _shown(parsed), None)


def _locate_file(path: str) -> Location:
    if path in ("", ":memory:") or path.startswith("file:"):
        raise StoreError(
            f"the store {path!r} is not a file: give the path of one, as runs/store.db"
        )
    place = Path(path).expanduser()
    return Location(URL.create("sqlite", database=str(place)), str(place), place)


def _shown(url: URL) -> str:
    host = url.host or url.query.get("host", "localhost")
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{host}{port}/{url.database or ''}"


def _with_timeout(url: URL) -> URL:
    limits = {"connect_timeout": str(CONNECT_SECONDS), "application_name": "fedlens"}
    return url.update_query_dict({k: v for k, v in limits.items() if k not in url.query})


def prepare_file(location: Location, *, create: bool) -> None:
    """Check SQLite's file before it is opened; with ``create``, make the folder it goes into.

    Raises:
        StoreError: if there is no file to open, or what is there is not a SQLite database.
    """
    path = location.path
    if path is None:
        return
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _check_header(path)
        elif create:
            # hashes of passwords are in it; SQLite gives its other files the same mode
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        else:
            raise StoreError(
                f"there is no store at {path}: `fedlens simulate` makes one, or "
                f"`fedlens db upgrade --store {path}` an empty one"
            )
    except OSError as error:
        raise StoreError(f"the store {path} cannot be opened: {error.strerror}") from error


def _check_header(path: Path) -> None:
    if not path.is_file():
        raise StoreError(f"the store {path} is not a file: name the database file itself")
    with path.open("rb") as file:
        header = file.read(len(_SQLITE_HEADER))
    if header not in (b"", _SQLITE_HEADER):
        raise StoreError(f"the store {path} is not a SQLite database: give another path")


def make_engine(location: Location, *, create: bool = False, foreign_keys: bool = True) -> Engine:
    """The engine of a store; it connects at first use.

    A SQLite transaction takes the write lock at its start where the connection has the execution
    option ``write``, so that two writers wait for each other instead of failing half-way.

    Args:
        location: of the store.
        create: whether SQLite may make the file.
        foreign_keys: whether SQLite holds foreign keys; off only while tables are altered.

    Raises:
        StoreError: if PostgreSQL's driver is not installed.
    """
    if location.path is None:
        return _postgres_engine(location)
    database = f"file:{quote(str(location.path.absolute()))}"
    query = {"mode": "rwc" if create else "rw", "uri": "true"}
    url = URL.create("sqlite", database=database, query=query)
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin below, not at sqlite3's whim
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        write = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgres_engine(location: Location) -> Engine:
    try:
        return create_engine(location.url, pool_pre_ping=True, hide_parameters=True)
    except ImportError as error:
        raise StoreError(
            "PostgreSQL's driver is not installed: pip install 'fedlens[postgres]'"
        ) from error


@contextmanager
def clear_errors(location: Location) -> Iterator[None]:
    """Turn what the database raises into a ``StoreError`` without credentials or values."""
    try:
        yield
    except DBAPIError as error:
        raise StoreError(_message(location, error)) from None
    except SQLAlchemyError as error:
        raise StoreError(f"the store {location.shown} failed: {type(error).__name__}") from error


def _message(location: Location, error: DBAPIError) -> str:
    reason = next(iter(str(error.orig).strip().splitlines()), type(error.orig).__name__)
    reason = _without_credentials(location.url, reason)
    if "database is locked" in reason:
        return f"the store {location.shown} is busy: locked for over {BUSY_SECONDS} s; try again"
    return f"the store {location.shown} cannot be used: {reason}"


def _without_credentials(url: URL, reason: str) -> str:
    secrets = [url.password, url.query.get("password")]
    # Names stand in quotes; bare, they are often part of other words.
    names = [f'"{name}"' for name in (url.username, url.query.get("user")) if name]
    for hidden in [str(secret) for secret in secrets if secret] + names:
        reason = reason.replace(hidden, "***")
    return reason
