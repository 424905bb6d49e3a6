"""How the runs of a SuperLink go, from the ``status.json`` that each keeps in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STATUS = "status.json"


def run_reports(runs: Path) -> list[dict[str, Any]]:
    """One report a run, in the order of their names; a damaged one says so."""
    found = []
    for folder in sorted(runs.glob("*")):
        path = folder / STATUS
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            report = {"status": "begun" if folder.is_dir() else "unreadable"}
        if isinstance(report, dict):
            found.append({**report, "name": folder.name, "path": str(folder)})
    return found
