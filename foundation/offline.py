"""No word to the outside: Flower and Ray look for updates and count uses unless they are told."""

from __future__ import annotations

import os

SILENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def stay_offline() -> None:
    """Set what keeps them silent, unless the environment says otherwise; before importing them."""
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
