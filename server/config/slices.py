"""Slices of the users by a declared public attribute, as settings write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedlens.server.config.section import require_valid

SLICE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}=[A-Za-z0-9_.-]{1,64}")
"""``attribute=value``, compared letter by letter."""
SLICES = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}=[A-Za-z0-9_.-]+:\d+(,[A-Za-z0-9_.-]+:\d+)*")


@dataclass(frozen=True)
class DeclaredSlices:
    """How many simulated users have each value of an attribute."""

    attribute: str
    users: dict[str, int]
    """By value, in the order written."""

    @property
    def total(self) -> int:
        """All users."""
        return sum(self.users.values())

    def count(self, named: str) -> int | None:
        """Users of the slice ``attribute=value``; None where there is no such slice."""
        attribute, _, value = named.partition("=")
        return self.users.get(value) if attribute == self.attribute else None


def parse_slices(text: str) -> DeclaredSlices | None:
    """The declaration in a text such as ``app_version=1.0:700,2.0:300``; None of an empty one."""
    if not text:
        return None
    attribute, _, rest = text.partition("=")
    pairs = [part.rpartition(":") for part in rest.split(",")]
    return DeclaredSlices(attribute, {value: int(count) for value, _, count in pairs})


def a_slice(value: str) -> str:
    """Check the slice that a run asks.

    Raises:
        ValueError: it is written in another form.
    """
    holds = not value or SLICE.fullmatch(value) is not None
    require_valid(holds, "write ATTRIBUTE=VALUE, such as app_version=2.0")
    return value


def declared_slices(value: str) -> str:
    """Check a declaration of simulated users' slices.

    Raises:
        ValueError: it is written in another form, or names a value twice or with no user.
    """
    if not value:
        return value
    fix = "write ATTRIBUTE=VALUE:USERS,VALUE:USERS, such as app_version=1.0:700,2.0:300"
    require_valid(SLICES.fullmatch(value) is not None, fix)
    found = parse_slices(value)
    require_valid(
        found is not None and value.count(",") + 1 == len(found.users), "name a value once"
    )
    require_valid(found is not None and min(found.users.values()) > 0, "give each value users")
    return value
