"""Oracle figures, computed by other implementations and with sixty digits."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedlens.accountant.events import SubsampledGaussian


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    return json.loads((Path(__file__).parents[1] / "oracles" / "accountants.json").read_text())


@pytest.fixture
def make_event():
    def make(rate=0.01, noise=1.0, clip=1.0, count=1, unit="user"):
        return SubsampledGaussian(unit, "poisson", "add-remove", rate, noise, clip, count)

    return make
