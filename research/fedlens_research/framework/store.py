"""Finished trials as JSON files, each found again by the plan that it was made by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlens.foundation.files import write_durably


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file, or None where there is no whole one."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def write_json(path: Path, value: object) -> None:
    """Write a JSON value, whole or not at all."""
    write_durably(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def digest(plan: Mapping[str, Any]) -> str:
    """SHA-256 of a plan in hexadecimal; the order of its keys does not matter."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TrialStore:
    """A folder of finished trials.

    A trial's plan says everything that its result depends on, a version of the code included, so
    another plan never takes an earlier result for its own.
    """

    folder: Path

    def path(self, plan: Mapping[str, Any]) -> Path:
        """Where the trial of this plan is kept."""
        return self.folder / f"{digest(plan)[:16]}.json"

    def find(self, plan: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the trial of this plan found, or None where it is not finished."""
        return read_json(self.path(plan))

    def keep(self, plan: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Write what the trial found; it counts as finished from then on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(plan), found)
