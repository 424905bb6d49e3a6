"""Widgets of our own: a sprite grid and a labelling desk, plain JavaScript shipped in the wheel.

Each is registered once, at import; their scripts talk to no server but the page's own, and put
text on the page as text, never as HTML.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def asset(name: str) -> str:
    """The text of a script or style of this package."""
    return (_HERE / name).read_text(encoding="utf-8")
