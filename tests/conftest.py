"""What every test may lean on: test mode, one torch thread, the shared data sets."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
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
atexit.register(shutil.rmtree, os.environ["FEDLENS_HOME"], ignore_errors=True)

for name in (STORE_VARIABLE, USER_VARIABLE):
    os.environ.pop(name, None)  # whoever runs the tests may have a store of their own

torch.set_num_threads(1)

REPOSITORY = Path(__file__).resolve().parent.parent
ORACLES = REPOSITORY / "tests" / "oracles"
LEAST_MEMORY = 4 << 30
"""Free bytes of a file system in memory from which on tests work there: each line of a ledger is
flushed, and a disk takes its time for that."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have tests work in memory where there is room, each suite in a folder of its own."""
    is_worker, memory = hasattr(config, "workerinput"), Path("/dev/shm")
    if is_worker or config.option.basetemp or not os.access(memory, os.W_OK):
        return
    found = os.statvfs(memory)
    if found.f_bavail * found.f_frsize < LEAST_MEMORY or found.f_flag & os.ST_NOEXEC:
        return
    folder = tempfile.mkdtemp(prefix="tests-of-fedlens-", dir=memory)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config.option.basetemp = Path(folder) / "pytest"


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
