"""What goes wrong in a secure sum; no message quotes a secret or a value."""

from __future__ import annotations

from fedlens.foundation.errors import FedlensError


class SecureSumError(FedlensError, RuntimeError):
    """A step of a secure sum that is refused or cannot be carried out; says which rule failed."""
