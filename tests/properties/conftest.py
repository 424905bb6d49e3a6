"""Each kind of task is prepared once."""

from __future__ import annotations

import functools

import pytest
from people import staged


@pytest.fixture(scope="session")
def stage_of():
    """A kind of task, in a unit, as a run prepares it."""
    return functools.lru_cache(staged)
