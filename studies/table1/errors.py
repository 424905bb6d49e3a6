"""What can go wrong in a study."""

from __future__ import annotations

from foundation.errors import FedlensError


class StudyError(FedlensError, ValueError):
    """A study that cannot be made as asked; the message names the argument and the mend."""


class CellFailed(FedlensError, RuntimeError):
    """Training or measuring of a cell ended in an error; the others may have gone well."""
