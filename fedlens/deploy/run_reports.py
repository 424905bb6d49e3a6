"""How the runs of a SuperLink go, from the ``status.json`` that each keeps in its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

STATUS_FILE = "status.json"
GOES_ON = "its process ended; `fedlens deploy run` with --name {} goes on"


def run_reports(runs: Path) -> list[dict[str, Any]]:
    """One report a run, in the order of their names; a damaged one says so."""
    found = []
    for folder in sorted(runs.glob("*")):
        path = folder / STATUS_FILE
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            report = {"status": "begun" if folder.is_dir() else "unreadable"}
        if isinstance(report, dict):
            if report.get("status") == "running" and _left(folder):
                report |= {"status": "interrupted", "reason": GOES_ON.format(folder.name)}
            found.append({**report, "name": folder.name, "path": str(folder)})
    return found


def _left(folder: Path) -> bool:
    """Whether the process that trained in a run's folder is no more, by the number in its lock.

    The lock itself is not tried: a process that begins meanwhile would take it for another's.
    """
    try:
        os.kill(int((folder / "lock").read_text(encoding="ascii")), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False
