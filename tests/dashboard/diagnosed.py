"""Diagnoses to look at: what the command would have said of a run, kept beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedlens.dashboard.faults.jobs import Question, RunPlace
from fedlens.diagnosis.stored_answers import FORMAT

TURNED = {
    "fault": "rotate90",
    "says": "turned left by 90 degrees",
    "amount": None,
    "share": 0.311,
    "low": 0.264,
    "high": 0.359,
    "q_value": 1.8e-61,
    "classes": list(range(10)),
    "alternatives": [],
    "certainty": 1.0,
    "probe": "better_after:rotate270",
    "probe_refusal": "",
    "otherwise": "Users who hold the device on its side.",
    "like": "",
}
UNNAMED = TURNED | {
    "fault": "",
    "says": "something that no fault of the library explains; it looks most like too dark",
    "low": None,
    "high": None,
    "probe": "better_after:dim:amount=2.5",
    "like": "dim",
}


def said(**changes: Any) -> dict[str, Any]:
    """The command's object, sound unless changed."""
    reference = {"name": "embedded", "images": 2000, "fits": True, "why": "", "unexplained": 0.0}
    return {
        "findings": [],
        "omnibus": {"p_value": 0.7},
        "smallest_detectable": {"rotate90": 0.09, "invert": 0.05, "quantise": None},
        "reference": reference | changes.pop("reference", {}),
        "releases": ["warmup"],
        "hypotheses": 118,
        "records_per_user": 8,
        "deviation": None,
        "class_names": [],
    } | changes


def folder_of(folder: Path, run_id: str = "run-1") -> RunPlace:
    """Make a store's folder that of a run which kept one release."""
    (folder / "releases").mkdir(exist_ok=True)
    (folder / "releases" / "round-000001.safetensors").write_bytes(b"sums")
    header = {"format": "fedlens-ledger-1", "header": {"run_id": run_id}}
    (folder / "ledger.jsonl").write_text(json.dumps(header) + "\n")
    return RunPlace(run_id, folder)


def keep(place: RunPlace, found: dict[str, Any], reference: str = "") -> Path:
    """Keep an answer as a finished diagnosis does."""
    path = Question(place, reference).kept_at
    path.parent.mkdir(exist_ok=True)
    kept = {"format": FORMAT, "reference": reference, "diagnosis": found, "looks": {}}
    path.write_text(json.dumps(kept))
    return path
