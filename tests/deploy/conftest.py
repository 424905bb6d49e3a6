"""A federation of two nodes as `fedlens deploy init` writes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedlens.deploy.initialise import FederationPlan, initialise


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("deploy") / "wards"
    initialise(folder, FederationPlan(nodes=("north", "south"), port=19_555))
    return folder


@pytest.fixture
def federation(written, tmp_path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "wards"))
