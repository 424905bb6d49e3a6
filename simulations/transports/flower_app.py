"""A Flower app in a folder of its own, made from whatever fedlens is installed: no checkout needed.

The app's code is not copied: its components are names of modules, and every process that Flower
starts runs in this Python, where they are installed.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

if TYPE_CHECKING:
    from fedlens.server.config.tree import Config

APP, PROGRAMS = "fedlens-app", "bin"
COMPONENTS = {
    "serverapp": "fedlens.simulations.federation.server_app:app",
    "clientapp": "fedlens.simulations.federation.apps:client_app",
}


def write_app(
    home: Path,
    config: Config,
    places: Mapping[str, str | bool],
    components: Mapping[str, str] = COMPONENTS,
) -> Path:
    """The folder that ``flwr run`` takes.

    Args:
        home: where to make it.
        config: of the run; its flat settings become the app's.
        places: settings that tell where things go, such as ``run.out``; never a secret, for all
            of them travel to the nodes.
        components: where the ServerApp and the ClientApp lie.
    """
    folder = home / APP
    folder.mkdir()
    settings = {**config.flat(), **places}
    app = {"publisher": "fedlens", "components": dict(components), "config": settings}
    project = {
        "name": "fedlens",
        "version": distribution("fedlens").version,
        "description": "The fedlens that is installed where this runs; no code of its own.",
        "license": "Apache-2.0",
    }
    whole = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    (folder / "pyproject.toml").write_text(whole, encoding="utf-8")
    return folder


def write_programs(home: Path) -> Path:
    """A folder with Flower's programs, which start each other by name, all run by this Python.

    The scripts that were installed with Flower may be another environment's.
    """
    folder = home / PROGRAMS
    folder.mkdir()
    for point in distribution("flwr").entry_points.select(group="console_scripts"):
        code = f"import sys; from {point.module} import {point.attr} as run; sys.exit(run())"
        script = folder / point.name
        command = f'exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"'
        script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        script.chmod(0o700)
    return folder


def with_programs(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` in which the programs of ``folder`` are found first."""
    return {**environment, "PATH": os.pathsep.join([str(folder), environment.get("PATH", "")])}
