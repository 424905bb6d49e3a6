"""Checks of what is about to be stored: each refusal names the field, its value and the mend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import get_args

from fedlens.store.errors import StoreError

MAX_INTEGER = 2**31 - 1
MAX_LONG = 2**63 - 1


def require(holds: bool, name: str, value: object, mend: str) -> None:
    """Raise ``StoreError`` unless ``holds``."""
    if not holds:
        raise StoreError(f"{name} = {value!r} cannot be stored: {mend}")


def check_choice(name: str, value: object, choices: object) -> None:
    """Refuse a value that is none of a ``Literal`` type's."""
    allowed = get_args(choices)
    require(value in allowed, name, value, f"it is one of {', '.join(allowed)}")


def check_text(record: object, *names: str) -> None:
    """Refuse empty texts."""
    for name in names:
        value = getattr(record, name)
        require(isinstance(value, str) and value != "", name, value, "give a text of one or more")


def check_whole(record: object, *names: str, most: int = MAX_INTEGER) -> None:
    """Refuse what is not a Python int from 0 to ``most`` (NumPy's integers are not)."""
    for name in names:
        value = getattr(record, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        require(whole and 0 <= value <= most, name, value, f"give a Python int from 0 to {most}")


def check_spending(record: object) -> None:
    """Refuse an ε that is negative or NaN, and a δ that is no probability."""
    for name in ("dp_epsilon", "bdp_as_published", "bdp_corrected", "bdp_sound"):
        value = getattr(record, name)
        require(value >= 0, name, value, "ε is a number ≥ 0, or inf")
    for name in ("delta_dp", "delta_bdp"):
        value = getattr(record, name)
        require(0 <= value <= 1, name, value, "δ is a probability")


def check_percentiles(curve: Mapping[str, float]) -> None:
    """Refuse a curve whose keys are no shares of users, or whose ε are negative or NaN."""
    for share, epsilon in curve.items():
        name = f"percentiles[{share!r}]"
        require(_is_share(share), name, epsilon, "name a share of users in [0, 1]")
        require(epsilon >= 0, name, epsilon, "ε is a number ≥ 0, or inf")


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def check_json(name: str, value: object) -> None:
    """Refuse what JSON cannot express (NaN and infinities too)."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{name} cannot be stored as JSON: {error}") from error


def check_date(name: str, value: object) -> None:
    """Refuse what is not a plain date: a time of day tells who was drawn."""
    plain = isinstance(value, date) and not isinstance(value, datetime)
    require(plain, name, value, "give a date, and no time of day")


def check_time(name: str, value: datetime) -> None:
    """Refuse a time without a time zone."""
    require(value.tzinfo is not None, name, value, "give a timezone-aware time")
