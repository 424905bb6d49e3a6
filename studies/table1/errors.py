"""What can go wrong in a study."""

from __future__ import annotations


class StudyError(ValueError):
    """A study that cannot be made as asked; the message names the argument and the mend."""


class CellFailed(RuntimeError):
    """Training or measuring of a cell ended in an error; the others may have gone well."""
