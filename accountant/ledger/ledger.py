"""The privacy ledger: every release is on disk, chained and synced, before it is used.

Canonical JSON lines, a header first. Each line ends in the SHA-256 of itself and names that of the
line before, so an edit, a deletion or a change of order shows. What is cut off at the end only
shows against a head that was kept elsewhere (a checkpoint): pass it to `Ledger.verify`. The chain
proves what was written, not that noise was really drawn.

A line says which mechanism ran, in which round, what for and on which day. All that it has of data
is a salted hash of a noised histogram, which its own mechanism covers: see
`fedlens.accountant.ledger.evidence`. The day is that on which the writing process opened the
ledger, not that of the line: how far a run comes in a day depends on what the users hold who were
drawn.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlens.accountant.events import Event
from fedlens.accountant.ledger.chain import (
    ChainError,
    LedgerEntry,
    Reader,
    header_line,
    seal_line,
)
from fedlens.foundation.dates import set_file_date, today
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.files import write_durably

__all__ = ["Ledger", "LedgerEntry", "LedgerError"]

_APPENDING = os.O_RDWR | os.O_APPEND


class LedgerError(FedlensError, ValueError):
    """A ledger that cannot be trusted, or cannot be written."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}: line {line}: {problem}")
        self.line = line
        """Number of the line at fault, the header being line 1."""
        self.problem = problem


def read_header(path: Path) -> tuple[dict[str, Any], str]:
    """A ledger's header with its hash; its entries are neither read nor checked.

    Raises:
        LedgerError: there is no header, or it was changed.
        OSError: the file cannot be read.
    """
    reader = Reader()
    with path.open("rb") as file:
        try:
            reader.feed(file.readline())
        except ChainError as error:
            raise LedgerError(path, 1, error.problem) from error
    return reader.header, reader.header_hash


class Ledger:
    """An append-only file. Made by `create` or `open`, never directly.

    Several processes may have it open; an append is refused once another has written to it, so two
    runs cannot share one ledger by mistake. Who means to share it appends within `held`.
    """

    def __init__(self, path: Path, reader: Reader, file: _File, recovered: int) -> None:
        self._path, self._reader, self._file = path, reader, file
        self._descriptor: int | None = None
        self._day = today()
        self.recovered = recovered
        """Bytes of a torn last line that `open` cut off: a write that a crash interrupted and that
        was never reported as done. 0 if there were none."""

    @classmethod
    def create(cls, path: str | Path, header: Mapping[str, Any]) -> Ledger:
        """A new ledger, durable on return: it has its whole header, or does not exist.

        Args:
            path: must not exist; its folder must.
            header: JSON values that say what the ledger belongs to.

        Raises:
            LedgerError: the file exists, or the header is not JSON.
        """
        path = Path(path)
        try:
            line, _ = header_line(header)
        except ChainError as error:
            raise LedgerError(path, 1, error.problem) from error
        with _locked(path.parent, os.O_RDONLY | os.O_DIRECTORY):
            if path.exists():
                raise LedgerError(path, 1, "exists already; open it, or choose another path")
            write_durably(path, line)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> Ledger:
        """Check a ledger's whole chain and make it ready for appending.

        A last line without its newline is what a crash in the middle of `append` leaves. No caller
        was ever told that it was written, so it is cut off, and `recovered` says so.

        Raises:
            LedgerError: naming the first line that is wrong, and how.
        """
        path = Path(path)
        with _locked(path, _APPENDING) as descriptor:
            data = _content(descriptor)
            whole = data.rfind(b"\n") + 1
            reader = _read(path, data[:whole])
            if whole < len(data):
                _cut(descriptor, whole)
            file = _File.of(descriptor)
        return cls(path, reader, file, len(data) - whole)

    @classmethod
    def read(
        cls, path: str | Path, expected_head: str | None = None, expected_entries: int | None = None
    ) -> Ledger:
        """Check a ledger without changing it; no right to write is needed.

        Args:
            path: the ledger.
            expected_head: a head kept elsewhere. The ledger may have grown since, but must hold
                the line with that hash, as entry number ``expected_entries`` if that is given.
            expected_entries: how many entries there were then; there must be as many at least.

        Raises:
            LedgerError: naming the first line that is wrong, and how.
        """
        path = Path(path)
        with _locked(path, os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
            data, file = _content(descriptor), _File.of(descriptor)
        reader = _read(path, data[: data.rfind(b"\n") + 1])
        if data and not data.endswith(b"\n"):
            raise LedgerError(
                path,
                reader.lines + 1,
                "has no newline: a write that a crash interrupted (opening the ledger cuts it off)",
            )
        _check_expected(path, reader, expected_head, expected_entries)
        return cls(path, reader, file, 0)

    @classmethod
    def verify(
        cls, path: str | Path, expected_head: str | None = None, expected_entries: int | None = None
    ) -> tuple[LedgerEntry, ...]:
        """All entries of a ledger that `read` finds nothing wrong with."""
        return cls.read(path, expected_head, expected_entries).entries

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the file against other processes, having read what they appended.

        What is decided on `entries` inside, and appended there, is one step that no other process
        comes between. Every line that others wrote is checked like those that `open` reads.

        Raises:
            LedgerError: the file was replaced, cut or changed, or has a wrong line.
        """
        with _locked(self._path, _APPENDING) as descriptor:
            self._catch_up(descriptor)
            self._descriptor = descriptor
            try:
                yield
            finally:
                self._descriptor = None

    def append(
        self,
        event: Event,
        *,
        round: int,  # noqa: A002 - the ledger's own word, by keyword only
        purpose: str,
        evidence_digest: str | None,
        run: str | None = None,
        source: str | None = None,
        users: str | None = None,
    ) -> LedgerEntry:
        """Write one entry; it is on disk when this returns.

        Args:
            event: the mechanism whose result is about to be used.
            round: number of the round that it happens in.
            purpose: what it is for, in words.
            evidence_digest: commitment to the noised histogram of norms, if there is one.
            run: whose round it is, where the ledger is that of several runs.
            source: hash of that run's own entry, where it was written before this one.
            users: the slice of users that the release is about, where it is not everyone.

        Raises:
            LedgerError: another process has written to the file, or the disk refused the line. The
                release must then not be used.
        """
        record = {
            "at": self._day.isoformat(),
            "event": event.to_json(),
            "evidence_digest": evidence_digest,
            "index": len(self),
            "previous": self.head,
            "purpose": purpose,
            "round": round,
            **({} if run is None else {"run": run}),
            **({} if users is None else {"slice": users}),
            **({} if source is None else {"source": source}),
        }
        try:
            line, entry = seal_line(record)
        except ChainError as error:
            raise LedgerError(self._path, len(self) + 2, error.problem) from error
        self._write(line)
        self._reader.take(entry)
        return entry

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries, that of index 0 first."""
        return tuple(self._reader.entries)

    def since(self, index: int) -> tuple[LedgerEntry, ...]:
        """The entries from ``index`` on."""
        return tuple(self._reader.entries[index:])

    def between(self, first: int, end: int) -> tuple[LedgerEntry, ...]:
        """The entries from index ``first`` up to, and without, ``end``."""
        return tuple(self._reader.entries[first:end])

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._reader.entries)

    @property
    def head(self) -> str:
        """Hash of the last line (of the header, if there is no entry): it pins the whole chain."""
        return self._reader.head

    @property
    def header(self) -> dict[str, Any]:
        """What the ledger was created with."""
        return dict(self._reader.header)

    @property
    def header_hash(self) -> str:
        """Hash of the header: it tells this ledger from any other."""
        return self._reader.header_hash

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def _catch_up(self, descriptor: int) -> None:
        known, now = self._file, _File.of(descriptor)
        number = self._reader.lines + 1
        if now.identity != known.identity:
            raise LedgerError(self._path, number, "the file was replaced; open the ledger again")
        if now.size < known.size:
            raise LedgerError(self._path, number - 1, "is missing: the file was cut while open")
        data = _content(descriptor, known.size)
        whole = data.rfind(b"\n") + 1
        try:
            self._reader.feed(data[:whole])
        except ChainError as error:
            raise LedgerError(self._path, self._reader.lines + 1, error.problem) from error
        if whole < len(data):  # of a process that died while it held the file
            _cut(descriptor, known.size + whole)
        self._file = _File.of(descriptor)

    def _write(self, line: bytes) -> None:
        if self._descriptor is not None:
            self._write_to(self._descriptor, line)
            return
        with _locked(self._path, _APPENDING) as descriptor:
            self._write_to(descriptor, line)

    def _write_to(self, descriptor: int, line: bytes) -> None:
        number = len(self) + 2
        if _File.of(descriptor) != self._file:
            raise LedgerError(
                self._path, number, "another process changed the file; open the ledger again"
            )
        try:
            _write_all(descriptor, line)
            set_file_date(descriptor, self._day)
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, self._file.size)
            raise LedgerError(self._path, number, f"could not be written: {error}") from error
        self._file = _File.of(descriptor)


@dataclass(frozen=True)
class _File:
    """Which file it is, and how long."""

    identity: tuple[int, int]
    size: int

    @classmethod
    def of(cls, descriptor: int) -> _File:
        status = os.fstat(descriptor)
        return cls((status.st_dev, status.st_ino), status.st_size)


def _read(path: Path, data: bytes) -> Reader:
    reader = Reader()
    try:
        reader.feed(data)
    except ChainError as error:
        raise LedgerError(path, reader.lines + 1, error.problem) from error
    return reader


def _check_expected(path: Path, reader: Reader, head: str | None, entries: int | None) -> None:
    present = len(reader.entries)
    if entries is not None and present < entries:
        raise LedgerError(
            path, present + 2, f"is missing: {entries} entries were expected, {present} are there"
        )
    if head is None:
        return
    hashes = [reader.header_hash, *(entry.hash for entry in reader.entries)]
    if entries is not None and hashes[entries] != head:
        raise LedgerError(
            path, entries + 1, f"has hash {hashes[entries]}, but {head} was expected: rewritten"
        )
    if head not in hashes:
        raise LedgerError(
            path, present + 1, f"ends the file, and no line has the expected hash {head}: cut off"
        )


@contextmanager
def _locked(path: Path, flags: int, lock: int = fcntl.LOCK_EX) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, lock)
        yield descriptor
    finally:
        os.close(descriptor)  # which also gives the lock back


def _content(descriptor: int, start: int = 0) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(start)
        return file.read()


def _write_all(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _cut(descriptor: int, size: int) -> None:
    os.ftruncate(descriptor, size)
    os.fsync(descriptor)
