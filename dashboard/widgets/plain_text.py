"""Texts from outside as Markdown that shows them letter by letter."""

from __future__ import annotations

import re

_SIGNS = frozenset(r"\`*_{}[]()#+-.!|<>~$:&")
# Addresses become links after escapes are taken out, so something unseen must stand in them.
_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_UNSEEN = "\u2060"  # joins words: it has no width, and no line breaks there
_UNDERLINE = re.compile(r"^=", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_SPACE = "\u00a0"
# Signs that no one sees and that turn or cut what stands after them, our own words too.
_TURNING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]")


def visible(text: object) -> str:
    """A text in which signs that turn or cut what follows stand as their numbers (`U+202E`)."""
    return _TURNING.sub(lambda found: f"U+{ord(found[0]):04X}", str(text).replace("\r\n", "\n"))


def plain(text: object) -> str:
    """A text as Markdown that shows it letter by letter, whatever signs are in it.

    No link, picture, heading, icon or colour comes of it.
    """
    still = _INDENT.sub(lambda found: _SPACE * len(found[0]), visible(text))
    broken = _ADDRESS.sub(_UNSEEN, still)
    escaped = "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in broken)
    return _UNDERLINE.sub(r"\\=", escaped)
