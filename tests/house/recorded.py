"""What is recorded in ``frozen/``, and how what is found is held against it."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "frozen"
RECORD = "python -m pytest tests/house/test_frozen.py --record"


def as_text(found: Any, indent: str = "") -> str:
    """JSON with one short value a line: a list or table that fits stays on its line."""
    line = json.dumps(found, ensure_ascii=False)
    if len(indent) + len(line) <= 100 or not isinstance(found, dict | list) or not found:
        return line
    inner = indent + " "
    if isinstance(found, dict):
        parts = [f"{json.dumps(k)}: {as_text(v, inner)}" for k, v in found.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}}}"
    parts = [as_text(value, inner) for value in found]
    return "[\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}]"


def hold(name: str, found: Any, *, record: bool) -> None:
    """Compare what was found with the file of that name in ``frozen/``, or write it there.

    Args:
        name: ending in ``.json``, for values, or otherwise for plain lines.
        found: JSON values, or lines.
        record: write.

    Raises:
        AssertionError: they differ; the message is the difference, line by line.
    """
    path, plain = FOLDER / name, not name.endswith(".json")
    text = "\n".join(found) if plain else as_text(found)
    if record:
        path.write_text(text + "\n", encoding="utf-8")
        return
    known = path.read_text(encoding="utf-8")
    known = known if plain else as_text(json.loads(known))
    lines = difflib.unified_diff(
        known.splitlines(), text.splitlines(), "frozen", "found", n=2, lineterm=""
    )
    difference = "\n".join(lines)
    assert not difference, f"{path.name} is frozen; if this is meant: {RECORD}\n{difference}"
