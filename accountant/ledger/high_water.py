"""How far a ledger of this machine had come, kept outside the folder that the ledger lies in.

A folder that is brought back as it was earlier agrees with itself: its ledger lacks what was
released since, and so do its checkpoint and its store. So ``$FEDLENS_HOME/heads`` has a small file
for each ledger that was written to here: the number of its entries and the hash of the last. It is
written after the ledger's own line is on the disk, so a ledger is never behind it but where it was
brought back from earlier, or where another copy of it goes on. To look at it, to write the line and
to raise it is one step, which no other process of this machine comes between: `held`.

It tells of what this machine wrote alone, and nothing where the file is gone or cannot be written,
or where there is no home: that is no error, for a ledger has all that an account needs, but it is
said once in the log. A file that is damaged is an error: it told of something.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.accountant.ledger.terms import fedlens_home
from fedlens.foundation.dates import set_file_date, today
from fedlens.foundation.errors import WrongUse

logger = logging.getLogger(__name__)

_LONGEST = 200
_WHOLE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_DSYNC
"""Half a mark, after a power cut, would be taken for a damaged one."""
_MARK = re.compile(rb"([0-9]{1,18}) ([0-9a-f]{64})\n")


@lru_cache(maxsize=8)
def _warn_once(why: str) -> None:
    logger.warning(
        "%s: an older copy of a ledger that is brought back will not be noticed on this machine; "
        "set FEDLENS_HOME to a folder that can be written",
        why,
    )


class HighWaterMark:
    """That of one ledger, which its header's hash tells from any other."""

    def __init__(self, ledger: Ledger) -> None:
        self._path: Path | None = None
        with suppress(WrongUse):
            self._path = fedlens_home() / "heads" / ledger.header_hash
        self._day = today()

    @contextmanager
    def held(self, ledger: Ledger) -> Iterator[None]:
        """Hold the mark against all copies of the ledger on this machine, and check it.

        The lock is that of a file of its own: the mark's is replaced each time it is raised.

        Raises:
            LedgerError: as `check`.
        """
        descriptor = self._lock()
        try:
            self.check(ledger)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)  # which also gives the lock back

    def _lock(self) -> int | None:
        if self._path is None:
            return None
        path = self._path.with_name(f"{self._path.name}.lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(OSError):
            set_file_date(descriptor, self._day)
            set_file_date(path.parent, self._day)
        return descriptor

    def raise_to(self, ledger: Ledger) -> None:
        """Note how far the ledger is now."""
        if self._path is None:
            _warn_once("there is no $FEDLENS_HOME")
            return
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(part, _WHOLE, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{len(ledger)} {ledger.head}\n".encode("ascii"))
                file.flush()
                set_file_date(file.fileno(), self._day)
            part.replace(self._path)
            set_file_date(self._path.parent, self._day)
        except OSError as error:
            _warn_once(f"{self._path.parent} cannot be written ({error.strerror})")

    def check(self, ledger: Ledger) -> None:
        """Refuse a ledger that lacks what it had, as far as that is known.

        Raises:
            LedgerError: it has fewer entries than were written here, or another; or what tells of
                that is damaged.
        """
        entries, head = self._kept(ledger.path)
        if len(ledger) < entries:
            raise LedgerError(
                ledger.path,
                len(ledger) + 2,
                f"is missing: the ledger has {len(ledger)} entries, and {entries} were written on "
                "this machine. It is an older copy, which lacks what was released since; go on in "
                "the folder that has all entries (where that is lost, what was spent is not known, "
                "and this copy cannot go on)",
            )
        if entries and ledger.between(entries - 1, entries)[0].hash != head:
            raise LedgerError(
                ledger.path,
                entries + 1,
                f"is another entry {entries} than was written on this machine, by {self._path}: "
                "another copy of the ledger went on; go on in that one",
            )

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """A ledger for who only looks, while others may write to it.

        Raises:
            LedgerError: it cannot be trusted, or lacks what it had.
        """
        found = Ledger.read(path)
        while True:
            try:
                cls(found).check(found)
            except LedgerError:
                now = Ledger.read(path)
                if len(now) == len(found):  # what is noted was in the ledger before
                    raise
                found = now
            else:
                return found

    def _kept(self, path: Path) -> tuple[int, str]:
        if self._path is None:
            return 0, ""
        try:
            with self._path.open("rb") as file:
                found = _MARK.fullmatch(file.read(_LONGEST))
        except OSError:
            return 0, ""
        if found is None:
            raise LedgerError(
                path,
                1,
                f"how far it had come on this machine is not known: {self._path} is damaged. Bring "
                "it back from a backup, or remove it if the ledger is the newest there is",
            )
        return int(found[1]), found[2].decode("ascii")
