"""Texts from outside as Markdown that shows them letter by letter."""

from __future__ import annotations

_SIGNS = frozenset(r"\`*_{}[]()#+-.!|<>~$:&")


def plain(text: object) -> str:
    """A text as Markdown that shows it letter by letter, whatever signs are in it.

    No link, picture, heading, icon or colour comes of it.
    """
    return "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in str(text))
