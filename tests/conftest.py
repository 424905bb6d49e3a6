"""What every test may lean on: test mode, one torch thread, the shared data sets."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from store_template import stores_from_a_template

from fedlens.dashboard.widgets.options import STORE_VARIABLE, USER_VARIABLE
from fedlens.foundation.logs import OURS

os.environ["FEDLENS_TEST_MODE"] = "1"
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ["FEDLENS_HOME"] = tempfile.mkdtemp(prefix="fedlens-tests-")  # not the tester's own

for name in (STORE_VARIABLE, USER_VARIABLE):
    os.environ.pop(name, None)  # whoever runs the tests may have a store of their own

torch.set_num_threads(1)

REPOSITORY = Path(__file__).resolve().parent.parent
ORACLES = REPOSITORY / "tests" / "oracles"
LONGEST = (
    "test_ray",
    "test_walk",
    "test_diagnosis",
    "test_tasks",
    "test_odd_federations",
    "test_cloak_study",
    "test_restart",
    "test_study",
    "test_resume",
    "test_wheel",
    "test_dashboard_team_browser",
    "test_alpha_studies",
    "test_mutants",
    "test_own_curve",
    "test_privatizer_curve",
    "test_site",
)
"""Files that take half a minute or more, longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, or one worker runs such a one alone when the other is done."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session", autouse=True)
def quick_stores() -> Iterator[None]:
    """New stores are copies of one; not in ``tests/store``."""
    with stores_from_a_template():
        yield


@pytest.fixture(autouse=True)
def no_store_left_behind() -> Iterator[None]:
    """Serving the dashboard names its store in the environment, where later runs would look."""
    yield
    for name in (STORE_VARIABLE, USER_VARIABLE):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A service started inside a test writes logs from then on; the next test begins without."""
    loggers = [logging.getLogger(name) for name in OURS]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def privatizer_oracles() -> dict[str, Any]:
    """Figures of informations and bounds that were computed outside this project."""
    found: dict[str, Any] = json.loads((ORACLES / "privatizers.json").read_text())
    return found
