"""Texts from outside as Markdown that shows them letter by letter."""

from __future__ import annotations

import re

_SIGNS = frozenset(r"\`*_{}[]()#+-.!|<>~$:&")
# Addresses become links after escapes are taken out, so something unseen must stand in them.
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_UNSEEN = "\u2060"  # joins words: it has no width, and no line breaks there


def plain(text: object) -> str:
    """A text as Markdown that shows it letter by letter, whatever signs are in it.

    No link, picture, heading, icon or colour comes of it.
    """
    broken = _ADDRESS.sub(_UNSEEN, str(text))
    return "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in broken)
