"""What the harness adds to processes of a real deployment, without a change to any of their code.

Python runs ``sitecustomize`` of the first folder on its path when it starts, so every process of a
federation that is started with that folder on ``PYTHONPATH`` notes its draws of noise, and (to keep
the suite short) has Flower's heartbeats every 10 s in place of 30. Or its server is hostile, and
plays messages again.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

NOTES = "FEDLENS_FAULTS_NOTES"
"""Variable with the file of draws."""
MESSAGES = "FEDLENS_FAULTS_MESSAGES"
"""Variable with the folder of messages, where the server is hostile."""
HEARTBEAT = 10
"""Seconds; Flower's least."""
CUSTOM = "from harness.deployed_faults.injection import inject\ninject()\n"


def injected(folder: Path, notes: Path, messages: Path | None = None) -> dict[str, str]:
    """The environment whose Python processes are injected.

    Args:
        folder: of ``sitecustomize``; made here.
        notes: where draws are noted.
        messages: where a hostile server keeps what was sent; None for an honest one.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CUSTOM, encoding="utf-8")
    root = str(Path(__file__).parents[2])
    paths = [str(folder), root, os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    kept = {k: v for k, v in os.environ.items() if k != "FEDLENS_TEST_MODE"}
    hostile = {} if messages is None else {MESSAGES: str(messages)}
    return {**kept, **hostile, "PYTHONPATH": path, NOTES: str(notes), "OMP_NUM_THREADS": "1"}


def inject() -> None:
    """Have this process's modules changed once they are imported."""
    sys.meta_path.insert(0, _Changing())


def _shorter_heartbeats(constants: ModuleType) -> None:
    """Nothing dies where messages come again: there a slow start must not pass for a death."""
    if MESSAGES in os.environ:
        return
    setattr(constants, "HEARTBEAT_DEFAULT_INTERVAL", HEARTBEAT)  # noqa: B010


def _noting_draws(step: ModuleType) -> None:
    from harness.faults.draws import note_draws

    note_draws(step, Path(os.environ[NOTES]))


def _hostile(http_grid: ModuleType) -> None:
    from harness.deployed_faults.hostile_grid import stand_between

    if MESSAGES in os.environ:
        stand_between(http_grid, Path(os.environ[MESSAGES]))


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "flwr.common.constant": _shorter_heartbeats,
    "fedlens.server.round.step": _noting_draws,
    "flwr.superlink.grid.http_grid": _hostile,
}


class _Changing(importlib.abc.MetaPathFinder):
    """Finds the modules of `CHANGES` as others are found, and changes them when they are run."""

    def __init__(self) -> None:
        self._looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in CHANGES or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Changer(spec.loader, CHANGES[name])
        return spec


class _Changer(importlib.abc.Loader):
    def __init__(self, loader: Any, change: Callable[[ModuleType], None]) -> None:
        self._loader, self._change = loader, change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)
