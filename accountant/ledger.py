"""The privacy ledger: every release is on disk, chained and synced, before it is used.

Canonical JSON lines, a header first. Each line ends in the SHA-256 of itself and names that of the
line before, so an edit, a deletion or a change of order shows. What is cut off at the end only
shows against a head that was kept elsewhere (a checkpoint): pass it to `Ledger.verify`. The chain
proves what was written, not that noise was really drawn.

A line says which mechanism ran, in which round, what for and when; it holds nothing that was
computed from data (see `accountant.evidence` for what the Bayesian accountant needs of that).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accountant.chain import ChainError, Entry, Reader, header_line, seal_line
from accountant.events import SubsampledGaussian

__all__ = ["Entry", "Ledger", "LedgerError"]


class LedgerError(ValueError):
    """A ledger that cannot be trusted, or cannot be written."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}: line {line}: {problem}")
        self.line = line
        """Number of the line at fault, the header being line 1."""
        self.problem = problem


class Ledger:
    """An append-only file. Made by `create` or `open`, never directly.

    Several processes may hold it; an append is refused once another has written to it, so two
    runs cannot share one ledger by mistake.
    """

    def __init__(self, path: Path, reader: Reader, size: int, recovered: int) -> None:
        self._path, self._size = path, size
        self._entries, self._head, self._header = reader.entries, reader.head, reader.header
        self.recovered = recovered
        """Bytes of a torn last line that `open` cut off: a write that a crash interrupted and that
        nobody was told of. 0 if there were none."""

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
        if path.exists():
            raise LedgerError(path, 1, "exists already; open it, or choose another path")
        try:
            line, _ = header_line(header)
        except ChainError as error:
            raise LedgerError(path, 1, error.problem) from error
        draft = path.with_name(f".{path.name}.{os.getpid()}.new")
        with draft.open("wb") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
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
        with _locked(path) as descriptor:
            data = path.read_bytes()
            whole = data.rfind(b"\n") + 1
            reader = _read(path, data[:whole])
            if whole < len(data):
                os.ftruncate(descriptor, whole)
                os.fsync(descriptor)
        return cls(path, reader, whole, len(data) - whole)

    @staticmethod
    def verify(
        path: str | Path,
        expected_head: str | None = None,
        expected_entries: int | None = None,
    ) -> tuple[Entry, ...]:
        """Check a ledger without changing it.

        Args:
            path: the ledger.
            expected_head: a head kept elsewhere. The ledger may have grown since, but must hold
                the line with that hash, as entry number ``expected_entries`` if that is given.
            expected_entries: how many entries there were then; there must be as many at least.

        Returns:
            All entries.

        Raises:
            LedgerError: naming the first line that is wrong, and how.
        """
        path = Path(path)
        data = path.read_bytes()
        reader = _read(path, data[: data.rfind(b"\n") + 1])
        if data and not data.endswith(b"\n"):
            raise LedgerError(
                path,
                reader.lines + 1,
                "has no newline: a write that a crash interrupted (opening the ledger cuts it off)",
            )
        _check_expected(path, reader, expected_head, expected_entries)
        return tuple(reader.entries)

    def append(
        self,
        event: SubsampledGaussian,
        *,
        round: int,  # noqa: A002 - the ledger's own word, by keyword only
        purpose: str,
        evidence_digest: str | None,
    ) -> Entry:
        """Write one entry; it is on disk when this returns.

        Args:
            event: the mechanism whose result is about to be used.
            round: number of the round that it happens in.
            purpose: what it is for, in words.
            evidence_digest: commitment to the private norm histogram, if there is one.

        Raises:
            LedgerError: another process has written to the file, or the disk refused the line. The
                release must then not be used.
        """
        record = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "event": event.to_json(),
            "evidence_digest": evidence_digest,
            "index": len(self._entries),
            "previous": self._head,
            "purpose": purpose,
            "round": round,
        }
        number = len(self._entries) + 2
        try:
            line, entry = seal_line(record)
        except ChainError as error:
            raise LedgerError(self._path, number, error.problem) from error
        self._write(line, number)
        self._entries.append(entry)
        self._head, self._size = entry.hash, self._size + len(line)
        return entry

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, that of index 0 first."""
        return tuple(self._entries)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    @property
    def head(self) -> str:
        """Hash of the last line (of the header, if there is no entry): it pins the whole chain."""
        return self._head

    @property
    def header(self) -> dict[str, Any]:
        """What the ledger was created with."""
        return dict(self._header)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def _write(self, line: bytes, number: int) -> None:
        with _locked(self._path) as descriptor:
            if os.fstat(descriptor).st_size != self._size:
                raise LedgerError(
                    self._path, number, "somebody else changed the file; open the ledger again"
                )
            try:
                _write_all(descriptor, line)
                os.fsync(descriptor)
            except OSError as error:
                os.ftruncate(descriptor, self._size)
                raise LedgerError(self._path, number, f"could not be written: {error}") from error


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
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)  # which also gives the lock back


def _write_all(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
