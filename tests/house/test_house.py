"""The house, held by measure: how large rooms and files are, one name a thing, plain words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

FLOORS = (
    *("foundation", "accountant", "models", "privatizers", "data", "client", "store", "server"),
    *("diagnosis", "dashboard", "simulations", "fedlens"),
)
LONGEST_FILE = 500
LARGEST_SHARE = 0.30


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    """Every file of the product with its text, by its path in the checkout."""
    root = Path(__file__).resolve().parents[2]
    found = [path for floor in FLOORS for path in (root / floor).rglob("*.py")]
    return {path.relative_to(root): path.read_text(encoding="utf-8") for path in sorted(found)}


def test_no_room_holds_too_much(sources):
    lines = Counter()
    for path, text in sources.items():
        lines[path.parts[0]] += text.count("\n")
    assert set(lines) == set(FLOORS)
    assert max(lines.values()) <= LARGEST_SHARE * lines.total()


def test_no_file_is_too_long(sources):
    assert [str(p) for p, text in sources.items() if text.count("\n") > LONGEST_FILE] == []
