"""How the store reaches its database: short transactions, from several threads and processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Engine, column, select, table
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fedlens.foundation.dates import set_file_date, today
from fedlens.store.engine import VERSION_TABLE, Location, clear_errors, require_same_files
from fedlens.store.errors import StoreVersionError

_ATTEMPTS = 20
_FILES = ("", "-wal", "-shm")
"""What SQLite keeps beside each other, by the ends of their names."""

_REVISION = table(VERSION_TABLE, column("version_num")).c.version_num

ResultT = TypeVar("ResultT")


class Transactions:
    """A database with its pool of connections; what goes wrong in one becomes a ``StoreError``.

    What has been written when a method returns lies in the store's own files.
    """

    def __init__(self, engine: Engine, location: Location, revision: str | None = None) -> None:
        """Nothing is written once the schema is at another revision than ``revision``."""
        self._engine = engine
        self._revision = revision
        self._location = location
        self._day = today()

    @property
    def place(self) -> str:
        """Where the store lies, in words without credentials."""
        return self._location.shown

    def close(self) -> None:
        """Let go of all connections; a later call opens new ones."""
        self._engine.dispose()
        self._date_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with clear_errors(self._location), Session(self._engine) as session:
            yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        writer = self._engine.execution_options(write=True)
        with clear_errors(self._location), Session(writer) as session, session.begin():
            self._require_revision(session)
            yield session
        require_same_files(self._engine, self._location)
        self._date_files()

    def _require_revision(self, session: Session) -> None:
        """A newer program may upgrade the store while this one has it open."""
        if self._revision is None:
            return
        found = session.scalar(select(_REVISION))
        if found != self._revision:
            raise StoreVersionError(
                f"the store {self.place} was brought to revision {found} meanwhile, this program "
                f"works with {self._revision}: start it again, with the newer fedlens"
            )

    def _date_files(self) -> None:
        """Leave SQLite's files with the day on which the store was opened, and no time."""
        if self._location.path is not None:
            for end in _FILES:
                set_file_date(Path(f"{self._location.path}{end}"), self._day)

    def _appending(self, work: Callable[[Session], ResultT]) -> ResultT:
        """Do ``work`` again where another writer took the same place in a chain first."""
        for _ in range(_ATTEMPTS - 1):
            writer = self._engine.execution_options(write=True)
            with clear_errors(self._location):
                try:
                    with Session(writer) as session, session.begin():
                        self._require_revision(session)
                        done = work(session)
                except IntegrityError:
                    continue
            require_same_files(self._engine, self._location)
            return done
        with self._writing() as session:
            return work(session)
