"""The browser's installer says what it did, and never more."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "browser_setup.py"


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script on a machine without the browser, where every command is only noted."""
    spec = importlib.util.spec_from_file_location("browser_setup", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CHROMIUM", tmp_path / "chromium")
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    return module


def test_a_browser_that_is_there_is_left_alone(setup: ModuleType) -> None:
    setup.CHROMIUM.touch()
    assert "tests will run" in setup.install()


def test_without_apt_or_root_nothing_is_tried(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup.subprocess, "run", lambda *_a, **_k: pytest.fail("ran something"))
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    assert "as root" in setup.install()
    monkeypatch.setattr(setup.shutil, "which", lambda name: None)
    assert "no apt-get" in setup.install()


@pytest.mark.parametrize(("status", "words"), [(0, "installed"), (100, "E: no network")])
def test_apt_is_asked_for_debians_package_only(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, status, "", "W: slow\nE: no network\n")

    monkeypatch.setattr(setup.subprocess, "run", run)
    assert words in setup.install()
    assert asked[0] == ["apt-get", "-qq", "update"]
    assert all(command[-1] in ("update", "chromium") for command in asked)
    assert len(asked) == (1 if status else 2)
