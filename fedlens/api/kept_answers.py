"""Keeping a diagnosis beside its run, where the dashboard opens with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.api.runs import Run

if TYPE_CHECKING:
    from fedlens.diagnosis.report import Diagnosis


def place_of_diagnosis(run: Run, reference: str | None = None) -> Path:
    """The file that keeps an answer about what the run has released by now.

    To be asked for before the releases are read: a run that goes on releases more meanwhile, of
    which the answer then says nothing.

    Args:
        run: to be diagnosed.
        reference: as it will be given to `diagnose`.
    """
    from fedlens.diagnosis.stored_answers import kept_at

    return kept_at(run.path, run.id, _named(run, reference))


def keep_diagnosis(
    run: Run, found: Diagnosis, reference: str | None = None, *, place: Path | None = None
) -> Path | None:
    """Write an answer into the run's folder, with each fault shown on the run's samples.

    Args:
        run: that was diagnosed.
        found: what was found.
        reference: as it was given to `diagnose`.
        place: of `place_of_diagnosis`; None for a run that has released nothing since.

    Returns:
        The file; None where the folder cannot be written to.
    """
    from fedlens.diagnosis.stored_answers import KeptAnswer, keep_answer

    named = _named(run, reference)
    said = found.to_json()
    path = place or place_of_diagnosis(run, reference)
    answer = KeptAnswer(named, said, _looks(run, said["findings"]))
    return path if keep_answer(path, answer) else None


def _named(run: Run, reference: str | None) -> str:
    """The reference as it is kept: empty for the run's own data."""
    from fedlens.diagnosis.stored_answers import is_public

    name = run.config.data.name
    own = reference is None or (reference == name and is_public(name))
    return "" if own else str(reference)


def _looks(run: Run, findings: list[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Pictures of the findings; none where the run's store has no samples or cannot be read."""
    from fedlens.dashboard.faults.examples import load_examples
    from fedlens.dashboard.faults.looks import pictures
    from fedlens.diagnosis.stored_answers import MOST_PICTURED
    from fedlens.store import StoreError, open_store

    if not findings:
        return {}
    try:
        with open_store(run.store) as store:
            classes = store.requested_classes(run.id)
            samples = load_examples(store, run.id, classes)
    except StoreError:
        return {}
    asked = {"samples": samples, "classes": max(classes, default=-1) + 1, "most": MOST_PICTURED}
    return {one["fault"]: pictures(one, asked) for one in findings}
