"""From a URL or a path to a database engine, and database errors to one clear message.

SQLite is opened by path, with its write-ahead log so that the dashboard reads while a run writes;
PostgreSQL by ``postgresql://`` URL, through psycopg 3. Messages never hold a user's name, a
password or the values of a statement.

Nothing here opens SQLite's file itself: where a process closes any descriptor of a file, the system
takes back every lock that it has on it, those of its open connections too. The next process to
leave the store then believes that it is the last, and deletes the write-ahead log under this one:
https://www.sqlite.org/howtocorrupt.html, 2.2.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary, WeakValueDictionary

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from fedlens.store.errors import StoreError

BUSY_SECONDS = 10
CONNECT_SECONDS = 10
VERSION_TABLE = "fedlens_version"
"""Holds the schema's revision."""

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = {
    *("afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    *("glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
}
"""File systems on which two machines do not share memory, as the write-ahead log needs."""

_SHARED: WeakValueDictionary[tuple[str, int, int], Engine] = WeakValueDictionary()
_SHARING = Lock()


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
        StoreError: if there is no file to open. Whether it is a database SQLite says itself.
    """
    path = location.path
    if path is None:
        return
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if not path.is_file():
                raise StoreError(f"the store {path} is not a file: name the database file itself")
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


def shared_engine(location: Location) -> Engine:
    """The engine of a store that is there: one in a process for all who open the same database.

    The same file under another path or through a link is the same database; a file that has taken
    its place is not.

    Raises:
        StoreError: if there is no such file, or PostgreSQL's driver is not installed.
    """
    with _SHARING:
        key = _key(location)
        engine = _SHARED.get(key)
        if engine is None or _has_moved(engine, key[2]):
            engine = _SHARED[key] = make_engine(location)
            if location.path is not None:
                _WATCHES[engine] = _FileWatch(engine, location.path)
        return engine


def _has_moved(engine: Engine, number: int) -> bool:
    """Whether an engine's path leads to its database no more, as after a folder was renamed."""
    watch = _WATCHES.get(engine)
    return watch is not None and watch.number() != number


def _key(location: Location) -> tuple[str, int, int]:
    if location.path is None:
        return location.url.render_as_string(hide_password=False), 0, 0
    try:
        status = location.path.stat()
    except OSError as error:
        raise StoreError(f"the store {location.path} cannot be opened: {error.strerror}") from error
    return "", status.st_dev, status.st_ino


class _FileWatch:
    """Tells whether an engine's connections still write to the files that lie at its path.

    As long as one connection is open, SQLite keeps the database and its log; whoever moves, deletes
    or replaces one of them meanwhile leaves the connections with files that nobody else can reach.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self._log, self._path = Path(f"{path}-wal"), path
        self._open, self._logged = 0, False
        self._seen: tuple[int | None, int | None] | None = None
        self._guard = Lock()
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "close", self._closed)

    def _connected(self, connection: Any, _record: object) -> None:
        with suppress(sqlite3.Error):  # what is wrong with the file, its first use says
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            self._logged = mode == "wal"
        with self._guard:
            self._open += 1

    def _closed(self, _connection: object, _record: object) -> None:
        with self._guard:  # it is called before the connection closes, and the log may go with it
            self._open -= 1
            self._seen = self._seen if self._open else None

    def number(self) -> int | None:
        """The number of the file that lies at the path; None where there is none."""
        return _number(self._path)

    def holds(self) -> bool:
        """Whether what was just committed lies at the path."""
        with self._guard:
            if not self._open:  # the last one to close leaves all in the database
                return _number(self._path) is not None
            found = (_number(self._path), _number(self._log) if self._logged else 0)
            self._seen = self._seen or found
            return None not in found and found == self._seen


def _number(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


_WATCHES: WeakKeyDictionary[Engine, _FileWatch] = WeakKeyDictionary()


def require_same_files(engine: Engine, location: Location) -> None:
    """Refuse to call anything saved that went into files which are no longer the store's.

    Raises:
        StoreError: if the store's files were moved, deleted or replaced under this process.
    """
    watch = _WATCHES.get(engine)
    if watch is not None and not watch.holds():
        raise StoreError(
            f"the files of the store {location.shown} were moved, deleted or replaced while this "
            "process had it open, so nothing more can be saved here: put them back, or start this "
            "process again on the store as it is now"
        )


def network_kind(path: Path) -> str:
    """The network file system that a path lies on, as nfs4; empty for a local one, or unknown."""
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:  # a system without this list
        return ""
    place, found, kind = str(path.absolute()), "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found):
            found, kind = point, after.split()[0]
    return kind if kind in NETWORK else ""


@contextmanager
def clear_errors(location: Location) -> Iterator[None]:
    """Turn what the database raises into a ``StoreError`` without credentials or values."""
    try:
        yield
    except DBAPIError as error:
        raise StoreError(_message(location, error.orig or error)) from None
    except sqlite3.Error as error:  # of what is asked outside of a transaction
        raise StoreError(_message(location, error)) from None
    except SQLAlchemyError as error:
        raise StoreError(f"the store {location.shown} failed: {type(error).__name__}") from error


def _message(location: Location, error: BaseException) -> str:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    reason = _without_credentials(location.url, reason)
    if "file is not a database" in reason:
        return (
            f"the store {location.shown} is not a SQLite database, or a damaged one: give another "
            "path, or restore a backup"
        )
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
