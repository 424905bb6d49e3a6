"""What every study shares: settings from its TOML file, rows, a printed table, a folder of plots.

A study is a module with

    COLUMNS: tuple[str, ...]        # of the printed table, keys of its rows
    class Settings                  # frozen dataclass; its fields are the keys of the TOML file
    def run(settings, *, seeds, data_dir, out, report) -> list[Row]

and a TOML file of the same name with a table ``[full]`` that gives every setting and a table
``[quick]`` with those that differ.
"""

from __future__ import annotations

import importlib
import json
import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, cast

from foundation.errors import FedlensError
from studies.papers import STUDIES

Value = str | int | float | bool | None
Row = dict[str, Value]
"""One line of a study's results: a flat JSON object."""
Report = Callable[[str], None]
"""Tells people what is under way, one line at a time."""

ROWS, SETTINGS = "rows.json", "settings.json"
FOLDER = Path(__file__).resolve().parent


class StudyError(FedlensError, ValueError):
    """A study that cannot be made as asked; the message names the argument and the mend."""


class StudyModule(Protocol):
    """A study, as its module gives it."""

    COLUMNS: tuple[str, ...]
    Settings: Callable[..., Any]

    def run(
        self,
        settings: Any,
        *,
        seeds: Sequence[int],
        data_dir: Path | None,
        out: Path,
        report: Report,
    ) -> list[Row]:
        """Train, measure, draw into ``out``, give the rows."""


def check_names(setting: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Refuse a setting that names nothing, or something that there is not.

    Raises:
        StudyError: which, with all there is.
    """
    choices = list(known)
    if not names:
        raise StudyError(f"{setting} must name at least one of {', '.join(choices)}")
    if strange := [name for name in names if name not in choices]:
        raise StudyError(f"{setting}: {strange[0]!r} is unknown: choose of {', '.join(choices)}")


def load_study(name: str) -> StudyModule:
    """The study's module.

    Raises:
        StudyError: there is no such study.
    """
    if name not in STUDIES:
        raise StudyError(f"study {name!r} is unknown: choose one of {', '.join(STUDIES)}")
    return cast(StudyModule, importlib.import_module(STUDIES[name].module))


def read_settings(
    study: StudyModule, path: Path, *, quick: bool, changes: Mapping[str, object] | None = None
) -> Any:
    """The study's settings: the file's ``[full]`` table, if asked ``[quick]``, then changes.

    Raises:
        StudyError: a table or setting is missing, unknown, of another kind or of no use.
    """
    with path.open("rb") as file:
        tables = tomllib.load(file)
    values = {**tables.get("full", {}), **(tables.get("quick", {}) if quick else {})}
    known = {field.name for field in fields(cast(Any, study.Settings))}
    if wrong := known.symmetric_difference(values):
        raise StudyError(f"{path}: settings {', '.join(sorted(wrong))} are missing or unknown")
    full = tables["full"]
    values |= {key: _changed(full, key, value) for key, value in (changes or {}).items()}
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return study.Settings(**{**values, **lists})


def _changed(full: Mapping[str, Any], key: str, value: object) -> object:
    """The value, if there is such a setting and it is like that of the full form."""
    if key not in full:
        raise StudyError(f"setting {key!r} is unknown: choose of {', '.join(sorted(full))}")
    if isinstance(value, list) and isinstance(full[key], list) and full[key]:
        return [_like(full[key][0], key, one) for one in value]
    return _like(full[key], key, value)


def _like(known: Any, key: str, value: object) -> object:
    """The value, if it is of the known one's kind, and not negative (nor 0 where that is none)."""
    if type(known) is float and type(value) is int:
        value = float(value)
    if type(value) is not type(known):
        raise StudyError(f"{key}={value!r}: give a value of the kind of {known!r}")
    least = 1 if type(known) is int and known > 0 else 0
    if isinstance(value, int | float) and not least <= value < math.inf:
        raise StudyError(f"{key}={value!r}: give a finite number of at least {least}")
    return value


def run_study(
    name: str,
    *,
    quick: bool = False,
    changes: Mapping[str, object] | None = None,
    seeds: Sequence[int] = (0,),
    data_dir: Path | None = None,
    out: Path,
    report: Report = lambda line: None,
) -> list[Row]:
    """Run a study by name; rows and settings are written to ``out`` too, as JSON.

    ``changes`` are settings over those of its file, say to run a part of it.

    Raises:
        StudyError: there is no such study, or it cannot be made as asked.
    """
    study = load_study(name)
    path = FOLDER / f"{STUDIES[name].module.rpartition('.')[2]}.toml"
    settings = read_settings(study, path, quick=quick, changes=changes)
    out.mkdir(parents=True, exist_ok=True)
    rows = [
        {key: _plain(value) for key, value in row.items()}
        for row in study.run(settings, seeds=seeds, data_dir=data_dir, out=out, report=report)
    ]
    used = {"quick": quick, "seeds": list(seeds), **as_mapping(settings)}
    (out / SETTINGS).write_text(json.dumps(used, indent=1) + "\n", encoding="utf-8")
    (out / ROWS).write_text(json.dumps(rows, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return rows


def summarised(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """Rows of several seeds as one: numbers as ``mean ± deviation``, for reading.

    Args:
        rows: of any seeds.
        keys: columns that tell settings apart; rows that agree in them are one.
    """
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return [
        {name: _together([row.get(name) for row in group], name in keys) for name in group[0]}
        for group in groups.values()
    ]


def table(rows: Iterable[Row], columns: Sequence[str]) -> str:
    """The columns of the rows as text, aligned, with a line of names above."""
    lines = [list(columns), *([_shown(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample's standard deviation (0 of one value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _together(values: Sequence[Value], key: bool) -> Value:
    numbers = [value for value in values if isinstance(value, int | float)]
    if key or len(numbers) != len(values) or len(values) == 1:
        return values[0]
    mean, deviation = mean_and_deviation(numbers)
    return f"{_shown(mean)} ± {_shown(deviation)}"


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return "-" if value is None else str(value)


def _plain(value: Any) -> Value:
    """A JSON value: numbers of other libraries as Python's, what is not finite as null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return cast(Value, value)


def as_mapping(settings: Any) -> Mapping[str, Any]:
    """The settings by name, for a study's own record."""
    return {field.name: getattr(settings, field.name) for field in fields(settings)}
