"""Ending a process of ours as the command does: one line for a user's mistake, and its status."""

from __future__ import annotations

import sys
from collections.abc import Callable

from foundation.errors import FedlensError


def launch(main: Callable[[list[str]], None]) -> None:
    """Run a process's ``main`` with the command line's arguments."""
    try:
        main(sys.argv[1:])
    except FedlensError as error:
        sys.stderr.write(f"fedlens: {error}\n")
        sys.exit(error.exit_status)
