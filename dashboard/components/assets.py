"""The widgets' scripts and styles, read from beside this file."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def asset(name: str) -> str:
    """The text of a script or style of this package."""
    return (_HERE / name).read_text(encoding="utf-8")
