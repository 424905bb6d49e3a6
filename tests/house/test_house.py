"""The house, held by measure: how large rooms and files are, one name a thing, plain words."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

FLOORS = (
    "foundation",
    "accountant",
    "models",
    "privatizers",
    "client",
    "server",
    "dashboard",
    "simulations",
    "studies",
    "fedlens",
)
LONGEST_FILE = 350
LARGEST_SHARE = 0.30
MOST_IN_SIMULATIONS = 4_600
BANNED = r"\b(whoever|nobody|of before|pupils?|lessons?|absorb\w*|grainy?)\b"
"""Words that have a plain or a better one; see the glossary of the docs."""


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
    assert lines["simulations"] <= MOST_IN_SIMULATIONS
    assert max(lines.values()) <= LARGEST_SHARE * lines.total()


def test_no_file_is_too_long(sources):
    assert [str(p) for p, text in sources.items() if text.count("\n") > LONGEST_FILE] == []


def test_no_two_classes_share_a_name(sources):
    places = defaultdict(list)
    for path, text in sources.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_words_that_have_a_better_one_are_gone(sources):
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in sources.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(BANNED, line, re.IGNORECASE)
    ]
    assert found == []


def test_what_differs_between_kinds_of_task_is_in_the_kind(sources):
    """No `if` asks which kind a task is: a new kind would have to be added there too."""
    kinds = "frozen|focused|wgan|annotator"
    asked = re.compile(rf"""(==|!=)\s*["']({kinds})["']|\.(family|part\.name)\b""")
    found = [
        f"{path}:{number}"
        for path, text in sources.items()
        if path.parts[0] in ("client", "server", "simulations", "fedlens", "dashboard")
        for number, line in enumerate(text.splitlines(), start=1)
        if asked.search(line)
    ]
    assert found == []
