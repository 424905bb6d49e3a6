"""Keeping a diagnosis beside its run, where the dashboard opens with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.runs import Run

if TYPE_CHECKING:
    from server.diagnosis.report import Diagnosis


def keep_diagnosis(run: Run, found: Diagnosis, reference: str | None = None) -> Path | None:
    """Write an answer into the run's folder, with each fault shown on the run's samples.

    Args:
        run: that was diagnosed.
        found: what was found.
        reference: as it was given to `diagnose`.

    Returns:
        The file; None where the folder cannot be written to.
    """
    from server.kept_diagnoses import KeptAnswer, keep_answer, kept_at

    own = reference is None or reference == run.config.data.name
    named = "" if own else str(reference)
    said = found.to_json()
    path = kept_at(run.path, run.id, named)
    answer = KeptAnswer(named, said, _looks(run, said["findings"]))
    return path if keep_answer(path, answer) else None


def _looks(run: Run, findings: list[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Pictures of the findings; none where the run's store has no samples or cannot be read."""
    from dashboard.faults.examples import examples
    from dashboard.faults.looks import pictures
    from server.kept_diagnoses import MOST_PICTURED
    from server.store import StoreError, open_store

    if not findings:
        return {}
    try:
        with open_store(run.store) as store:
            classes = store.requested_classes(run.id)
            samples = examples(store, run.id, classes)
    except StoreError:
        return {}
    asked = {"samples": samples, "classes": max(classes, default=-1) + 1, "most": MOST_PICTURED}
    return {one["fault"]: pictures(one, asked) for one in findings}
