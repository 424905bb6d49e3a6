"""What the store raises: one clear message each, never with credentials in it."""

from __future__ import annotations

from fedlens.foundation.errors import FedlensError


class StoreError(FedlensError, ValueError):
    """The store cannot do what was asked; the message says what and how to mend it."""


class StoreVersionError(StoreError):
    """The store's schema is not the one this version of fedlens works with."""
