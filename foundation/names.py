"""What classes, attributes and federations may be called."""

from __future__ import annotations

LONGEST_NAME = 64
"""Characters."""
NAME_RULE = f"give 1 to {LONGEST_NAME} printable characters, no blanks around them"


def is_plain_name(name: str) -> bool:
    """Whether a text meets `NAME_RULE`."""
    return 0 < len(name) <= LONGEST_NAME and name == name.strip() and name.isprintable()
