"""Which of a test's cases run each time, and which only with ``make test-thorough``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], *each_time: Any) -> list[Any]:
    """All cases, those marked as thorough that are not among the ones to run each time."""
    known = list(cases)
    assert all(case in known for case in each_time), f"{each_time} are not all among {known}"
    return [
        case if case in each_time else pytest.param(case, marks=pytest.mark.thorough)
        for case in known
    ]
