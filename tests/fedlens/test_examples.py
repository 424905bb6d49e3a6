"""The examples run as they are, and the notebook's outputs are what its cells print."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.law("documents: the pages say what the code does")

SCRIPTS = {
    "simulate_and_look.py": ("differential privacy", "80 samples of round 1", "sheet.png"),
    "plan_a_budget.py": ("With noise 1 the schedule costs ε = 1.829", "For ε = 1"),
    "train_on_samples.py": ("epoch 2", "saved with the provenance"),
}


def test_every_script_is_run_here(repository):
    assert {path.name for path in (repository / "examples").glob("*.py")} == set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_what_it_says(name, repository, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path / "run")])
    runpy.run_path(str(repository / "examples" / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(words in printed for words in SCRIPTS[name])
    if "simulate" in name:
        assert (tmp_path / "run" / "sheet.png").stat().st_size > 1000


def cells(path: Path) -> list[dict]:
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


def numbered(text: str) -> str:
    """Without what differs from run to run: ids, and figures of noise from the system's source."""
    return " ".join(word for word in text.split() if not any(sign.isdigit() for sign in word))


def test_the_notebook_prints_what_it_shows(repository):
    found = cells(repository / "examples" / "first_run.ipynb")
    space: dict[str, object] = {}
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    for cell in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), space)
        shown = "".join("".join(output["text"]) for output in cell["outputs"])
        assert numbered(printed.getvalue()) == numbered(shown)
