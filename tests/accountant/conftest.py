"""Oracle figures computed outside this project, where they are at hand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from accountant.events import SubsampledGaussian

_SHARED = os.environ.get("FEDLENS_SHARED") or Path(__file__).parents[3] / "shared"
_PATH = Path(_SHARED) / "oracles" / "accountants.json"


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    if not _PATH.exists():
        pytest.skip("no oracle figures: set FEDLENS_SHARED to the folder that has oracles/")
    return json.loads(_PATH.read_text())


@pytest.fixture
def make_event():
    def make(rate=0.01, noise=1.0, clip=1.0, count=1, unit="user"):
        return SubsampledGaussian(unit, "poisson", "add-remove", rate, noise, clip, count)

    return make
