"""Errors that are a user's to fix, and the exit status that each ends a command with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import ClassVar


class ExitStatus(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    OUT_OF_BUDGET = 3
    ALARM = 4
    """A claim does not hold, of an audit or a file, or a card shows what was not expected."""
    UNDECIDED = 5
    """Whether a claim, or what was expected, holds is left open."""


class FedlensError(Exception):
    """The message names what was wrong, its value and the fix, and is all that a user sees.

    Every error that a user can cause derives from it; any other exception is a bug of ours and
    shows its traceback.
    """

    exit_status: ClassVar[ExitStatus] = ExitStatus.FAILED


class WrongUse(FedlensError, ValueError):
    """An argument or a setting that cannot be used."""

    exit_status = ExitStatus.WRONG_USE


def require_names(setting: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Refuse a setting that names nothing, or something that does not exist.

    Raises:
        WrongUse: the message lists the choices.
    """
    choices = list(known)
    if not names:
        raise WrongUse(f"{setting} must name at least one of {', '.join(choices)}")
    if strange := [name for name in names if name not in choices]:
        raise WrongUse(f"{setting}: {strange[0]!r} is unknown: choose of {', '.join(choices)}")
