"""What classes, attributes and federations may be called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST_NAME = 64
"""Characters."""
NAME_RULE = f"give 1 to {LONGEST_NAME} printable characters, no blanks around them"


def is_plain_name(name: str) -> bool:
    """Whether a text meets `NAME_RULE`."""
    return 0 < len(name) <= LONGEST_NAME and name == name.strip() and name.isprintable()


def call_class(number: int, names: Sequence[str] = ()) -> str:
    """What a class is called: its name among ``names``, or ``class N`` where it has none."""
    return names[number] if 0 <= number < len(names) else f"class {number}"


def call_classes(numbers: Iterable[int], names: Sequence[str] = ()) -> str:
    """What several classes are called, with commas between: ``class 3, 8``, or their names."""
    shown = tuple(numbers)
    if names:
        return ", ".join(call_class(number, names) for number in shown)
    return f"class {', '.join(map(str, shown))}"
