"""How far a ledger of this machine had come, kept outside the folder that the ledger lies in.

A folder that is brought back as it was earlier agrees with itself: its ledger lacks what was
released since, and so do its checkpoint and its store. So ``$FEDLENS_HOME/heads`` has a small file
for each ledger that was written to here: the number of its entries and the hash of the last. It is
written after the ledger's own line is on the disk, so a ledger is never behind it but where it was
brought back from earlier.

It tells of what this machine wrote alone, and nothing where the file is gone or cannot be written:
that is no error, for a ledger has all that an account needs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from accountant.ledger.ledger import Ledger
from accountant.ledger.terms import fedlens_home
from foundation.dates import set_file_date, today

_LONGEST = 200


class HighWaterMark:
    """That of one ledger, which its header's hash tells from any other."""

    def __init__(self, ledger: Ledger) -> None:
        self._path: Path = fedlens_home() / "heads" / ledger.header_hash
        self._day = today()

    def raise_to(self, ledger: Ledger) -> None:
        """Note how far the ledger is now."""
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{len(ledger)} {ledger.head}\n".encode("ascii"))
                file.flush()
                set_file_date(file.fileno(), self._day)
            part.replace(self._path)
            set_file_date(self._path.parent, self._day)

    def fault(self, ledger: Ledger) -> str:
        """What a ledger lacks that it had; empty where nothing is known to be missing."""
        entries, head = self._kept()
        if len(ledger) < entries:
            return (
                f"has {len(ledger)} entries, and {entries} were written on this machine: it is an "
                "older copy, whose ledger lacks what was released since; go on in the folder that "
                "has all entries"
            )
        if entries and ledger.between(entries - 1, entries)[0].hash != head:
            return (
                f"has another entry {entries} than was written on this machine: another copy of it "
                "went on; go on in that one"
            )
        return ""

    def _kept(self) -> tuple[int, str]:
        try:
            with self._path.open("rb") as file:
                number, head = file.read(_LONGEST).decode("ascii").split()
            return int(number), head
        except (OSError, ValueError):
            return 0, ""
