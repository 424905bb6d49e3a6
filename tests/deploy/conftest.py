"""A federation of two nodes as `fedlens deploy init` writes it."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from fedlens.deploy.initialise import FederationPlan, initialise


@pytest.fixture
def free_port():
    """Asks the system for a port that no other process has, this suite's twin for one."""

    def ask() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return ask


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("deploy") / "wards"
    initialise(folder, FederationPlan(nodes=("north", "south"), port=19_555))
    return folder


@pytest.fixture
def federation(written, tmp_path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "wards"))
