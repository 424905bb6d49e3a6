"""Ending a process of ours as the command does: one line for a user's mistake, and its status."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from fedlens.foundation.errors import FedlensError

PARENT_SECONDS = 1.0
KILL_SECONDS = 20.0


def launch(main: Callable[[list[str]], None], *, supervised: bool = False) -> None:
    """Run a process's ``main`` with the command line's arguments.

    Args:
        main: what runs.
        supervised: whether it is to end when the process that started it does, however that ends.
    """
    if supervised:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        main(sys.argv[1:])
    except FedlensError as error:
        sys.stderr.write(f"fedlens: {error}\n")
        sys.exit(error.exit_status)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(KILL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
