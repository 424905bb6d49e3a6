"""What can go wrong in a study."""

from __future__ import annotations

from fedlens.foundation.errors import FedlensError, WrongUse


class StudyError(WrongUse):
    """A study that cannot be made as asked; the message names the argument and the fix."""


class TrialFailed(FedlensError):
    """A trial ended in an error; the others may have gone well."""
