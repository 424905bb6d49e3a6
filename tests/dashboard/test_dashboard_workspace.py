"""What is found below a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlens.dashboard.access import workspace
from fedlens.dashboard.access.workspace import DEEPEST, look_through


def put(path: Path) -> Path:
    """An empty file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_runs_and_stores_are_found_as_deep_as_is_said_and_not_in_a_run_or_hidden(
    tmp_path: Path,
) -> None:
    deepest = tmp_path.joinpath(*"abcde"[:DEEPEST])
    run = put(tmp_path / "run" / "ledger.jsonl").parent
    put(run / "releases" / "store.db")
    put(tmp_path / ".hidden" / "store.db")
    put(deepest / "further" / "store.db")
    stores = {put(run / "store.db"), put(deepest / "store.db"), put(tmp_path / "store.db")}
    found = look_through(tmp_path)
    assert found.runs == (run,) and found.whole
    assert set(found.stores) == stores


def test_a_folder_of_too_many_folders_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        put(tmp_path / name / "store.db")
    monkeypatch.setattr(workspace, "MOST_FOLDERS", 3)
    found = look_through(tmp_path)
    assert not found.whole and len(found.stores) == 2
