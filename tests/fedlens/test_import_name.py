"""A folder of the user may hold a ``models.py`` or a ``server/``: ours are all below `fedlens`."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

OWN_MODULES = ("accountant", "data", "diagnosis", "foundation", "models", "privatizers", "store")
OWN_PACKAGES = ("client", "dashboard", "server", "simulations")
FLOORS = (*OWN_MODULES, *OWN_PACKAGES)
IMPORTS = """
import fedlens
import fedlens.client.app, fedlens.dashboard.serve, fedlens.diagnosis.diagnose, fedlens.server.app
import models, server
assert models.MINE and server.MINE
"""


@pytest.fixture
def own_folder(tmp_path) -> Path:
    """A project whose modules have the names of our top-level folders."""
    for name in OWN_MODULES:
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    for name in OWN_PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    """Standard output of Python, started in ``folder`` with ``folder`` first on its path."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_imported_beside_modules_of_these_names(own_folder):
    run(own_folder, "-c", IMPORTS)


def test_the_command_simulates_beside_them(own_folder, tiny):
    settings = [word for key, value in tiny.items() for word in ("--set", f"{key}={value}")]
    run(own_folder, "-m", "fedlens", "simulate", *settings, "--no-student", "--out", "here")
    assert (own_folder / "here" / "pictures" / "contact-sheet.png").exists()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: fedlens[ray]")
def test_flwr_runs_it_beside_them(own_folder, tiny):
    settings = [word for key, value in tiny.items() for word in ("--set", f"{key}={value}")]
    simulate = ("simulate", *settings, "--no-student", "--out", "ray", "--transport", "ray")
    run(own_folder, "-m", "fedlens", *simulate)
    assert (own_folder / "ray" / "pictures" / "contact-sheet.png").exists()


def test_nothing_else_is_installed():
    names = (distribution("fedlens").read_text("top_level.txt") or "").split()
    assert names == ["fedlens"]


def test_no_code_imports_a_floor_by_its_bare_name(repository):
    """What works in a checkout, whose root is on the path, and nowhere else."""
    found = []
    for folder in (*FLOORS, "fedlens", "research", "benchmarks", "tests", "examples", "docs"):
        for path in (repository / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
                bare = [n for n in names if n.split(".")[0] in FLOORS]
                found += [f"{path.relative_to(repository)}: {name}" for name in bare]
    assert found == []
