"""Settings of a study: a frozen dataclass, filled from a TOML file and from ``--set``.

The file has a table ``[full]`` that gives every setting and a table ``[quick]`` with those that
differ in the small form. A changed value must be of the kind that the file has.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from fedlens.foundation.errors import WrongUse, require_names
from fedlens_research.framework.errors import StudyError

Settings = TypeVar("Settings")

ONE_WAY: dict[str, Any] = {"generator.threads": 1, "generator.precision": "float32"}
"""What studies do not leave to the machine, as presets do: their trials are computed in one way."""


def check_names(setting: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Refuse a setting that names nothing, or something that does not exist.

    Raises:
        StudyError: the message lists the choices.
    """
    try:
        require_names(setting, names, known)
    except WrongUse as error:
        raise StudyError(str(error)) from None


def parse_points(
    points: Sequence[str], second: str = "a weight", first: str = "an order"
) -> list[tuple[float, float]]:
    """Pairs of what ``first`` and ``second`` name, of settings written as ``number:number``.

    Raises:
        StudyError: one is written otherwise.
    """
    found = []
    for point in points:
        alpha, _, weight = point.partition(":")
        try:
            found.append((float(alpha), float(weight)))
        except ValueError:
            raise StudyError(f"point {point!r}: write {first} and {second}, as in 1:0.5") from None
    return found


def read_settings(
    kind: type[Settings], path: Path, *, quick: bool, changes: Mapping[str, object] | None = None
) -> Settings:
    """The file's ``[full]`` table, with ``[quick]`` over it if asked, then the changes.

    Raises:
        StudyError: a setting is missing, unknown, of another type or out of range.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    full = tables.get("full", {})
    values = {**full, **(tables.get("quick", {}) if quick else {})}
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if wrong := known.symmetric_difference(values):
        raise StudyError(f"{path}: settings {', '.join(sorted(wrong))} are missing or unknown")
    values |= {key: _changed(full, key, value) for key, value in (changes or {}).items()}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def as_mapping(settings: Any) -> dict[str, Any]:
    """The settings by name."""
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


def _changed(full: Mapping[str, Any], key: str, value: object) -> object:
    """The value, if the setting exists and the full form has a value of this type."""
    if key not in full:
        raise StudyError(f"setting {key!r} is unknown: choose of {', '.join(sorted(full))}")
    if isinstance(value, list) and isinstance(full[key], list) and full[key]:
        return [_like(full[key][0], key, one) for one in value]
    return _like(full[key], key, value)


def _like(known: Any, key: str, value: object) -> object:
    """The value, if it has the known one's type and is not negative (nor 0 where that is not)."""
    if type(known) is float and type(value) is int:
        value = float(value)
    if type(value) is not type(known):
        raise StudyError(f"{key}={value!r}: give a value of the kind of {known!r}")
    least = 1 if type(known) is int and known > 0 else 0
    if isinstance(value, int | float) and not least <= value < math.inf:
        raise StudyError(f"{key}={value!r}: give a finite number of at least {least}")
    return value
