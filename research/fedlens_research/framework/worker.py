"""One function of a trial in a process of its own.

    python -m fedlens_research.framework.worker MODULE:FUNCTION FOLDER OUT

Where the function fails, ``failure.txt`` in the trial's folder says why.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from fedlens.foundation.errors import FedlensError
from fedlens_research.framework.trials import FAILURE

_KIB = 1024


def main(arguments: Sequence[str]) -> int:
    """Call the function; returns the exit status."""
    function, folder, out = arguments[0], Path(arguments[1]), Path(arguments[2])
    # keep Flower from calling home; must be set before it is imported
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(folder, out)
    except Exception as error:  # the study goes on without this trial and says why
        if not isinstance(error, FedlensError):
            traceback.print_exc()
        (folder / FAILURE).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        return 1
    return 0


def peak_mb() -> float:
    """Largest resident memory of this process so far, in MiB.

    The kernel's own mark, where it tells: what getrusage says begins with the size of the process
    that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        marks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    except (OSError, ValueError):
        marks = []
    largest = marks[0] if marks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(largest / _KIB, 1)


def _end_with(parent: int) -> None:
    """End this process at once when the study that started it is gone; a run may be killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    sys.exit(main(sys.argv[1:]))
