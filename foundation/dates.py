"""Days: the finest time that anything keeps of a run.

How long a round takes depends on what the users hold who were drawn for it, so a time in an entry,
a row or a file's status would tell of them. A process that trains therefore reads the clock once,
as it begins, and dates all that it writes by that day. When it begins is its operator's doing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path


def today() -> date:
    """The present day, UTC."""
    return datetime.now(UTC).date()


def day_of(text: str) -> date:
    """The day that an ISO 8601 text says, which in old ledgers has a time behind it.

    Raises:
        ValueError: it says none.
    """
    return date.fromisoformat(text[: len("2026-01-31")])


def set_file_date(file: Path | int, day: date) -> None:
    """Set when a file or folder was last changed and last read to the midnight that began ``day``.

    When its status was last changed and when it was made cannot be set: the system keeps both. A
    file that belongs to somebody else is left as it is.

    Args:
        file: a path, or the descriptor of an open file.
        day: in UTC.
    """
    midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    with suppress(PermissionError, FileNotFoundError):
        os.utime(file, (midnight, midnight))
