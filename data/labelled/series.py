"""Time series in a table: ``series:PATH,sensitive=COLUMN``, a row a series or a row a step.

**Wide**: a row a series, its steps in columns that end in a number (``t0``, ``t1``, ...; or ``0``,
``1``, ...). **Long**: a row a step, with a column that names the series, one that orders its
steps and one with the value. A series is its own utility.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.data.attributes.options import Options, parse_options
from fedlens.data.labelled.labels import OwnRecords, deal, keys_of, left_out
from fedlens.data.labelled.tables import TextTable, read_table
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateDataError, Split

DEFAULTS = {
    "sensitive": "",
    "owner": "",
    "series": "series",
    "step": "step",
    "value": "value",
    "steps": "",
    "unit": "",
}
LEAST_STEPS, MOST_STEPS = 4, 1000
NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True, eq=False)
class ReadSeries:
    """Series of any lengths.

    Attributes:
        names: of each.
        values: float64 [steps] of each; not finite where a step has no number.
        sensitive: texts, one a step, of each; empty where none was asked for.
        owners: texts, one each, or None.
        long: whether a row was a step.
    """

    names: list[str]
    values: list[NDArray[np.float64]]
    sensitive: list[list[str]]
    owners: list[str] | None
    long: bool


def load_labelled_series(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """The three parts of a table of series, dealt by owner or series.

    Raises:
        PrivateDataError: as :func:`read_labelled_series`, and where the attribute has one value or
            a part lacks one.
    """
    return deal(read_labelled_series(name, argument), seed)


def read_labelled_series(name: str, argument: str) -> OwnRecords:
    """Series of a table, in units of ``unit``, with the attribute of each step.

    Long series are cut into pieces of ``steps`` steps; what is left over, and series that are
    shorter or lack a number, are left out, which a note says. Without ``steps`` it is the commonest
    length. Without ``unit`` it is the values' root mean square to one digit. An attribute of
    the whole series counts at each step.

    Raises:
        PrivateDataError: a column is missing, or no series is left.
    """
    options = parse_options("series", argument, DEFAULTS, needed=("sensitive",))
    found = read_series(options, read_table(options.path), labelled=True)
    notes: list[str] = []
    steps = _steps(options, found)
    pieces, short = _pieces(found, steps)
    left_out(notes, short, f"shorter than {steps} steps")
    if not pieces:
        raise PrivateDataError(f"{options.path}: no series has {steps} steps; give steps= fewer")
    names = [found.names[row] for row, _ in pieces]
    values = np.stack([found.values[row][at : at + steps] for row, at in pieces])
    told = [found.sensitive[row][at : at + steps] for row, at in pieces]
    owners = (
        found.names if found.owners is None and len(pieces) > len(found.names) else found.owners
    )
    return as_series(
        name,
        options,
        names,
        values,
        [text for one in told for text in one],
        None if owners is None else [owners[row] for row, _ in pieces],
        notes,
    )


def as_series(
    name: str,
    options: Options,
    names: list[str],
    values: NDArray[np.float64],
    sensitive: list[str],
    owners: list[str] | None,
    notes: list[str],
) -> OwnRecords:
    """Series float64 [n, T] as records, those without a number or an attribute left out.

    Args:
        name: of the source.
        options: with the path and ``unit``.
        names: of the series.
        values: of them.
        sensitive: texts, one a series or one a step.
        owners: texts, one a series.
        notes: is added to.

    Raises:
        PrivateDataError: none is left, or the steps are too few or too many.
    """
    steps = values.shape[1]
    if not LEAST_STEPS <= steps <= MOST_STEPS:
        raise PrivateDataError(
            f"{options.path}: series of {steps} steps; give {LEAST_STEPS} to {MOST_STEPS} (steps=)"
        )
    each = len(sensitive) // max(1, len(values))
    told = [sensitive[row * each : (row + 1) * each] for row in range(len(values))]
    whole = [
        row
        for row in range(len(values))
        if np.isfinite(values[row]).all() and all(told[row]) and (owners is None or owners[row])
    ]
    kept = set(whole)
    left_out(
        notes, [one for row, one in enumerate(names) if row not in kept], "for want of a value"
    )
    if not whole:
        raise PrivateDataError(f"{options.path}: no series has a number at each step; fix it")
    chosen = values[whole]
    unit = _unit(options, chosen, notes)
    records = torch.from_numpy((chosen / unit).astype(np.float32))[..., None]
    held = None if owners is None else [owners[row] for row in whole]
    return OwnRecords(
        name=name,
        path=options.path,
        records=records,
        utility=None,
        sensitive=[text for row in whole for text in (told[row] * (steps // each))],
        owners=held,
        keys=keys_of(held, records),
        limits=(_outward(float(records.min()), -1), _outward(float(records.max()), 1)),
        unit=unit,
        steps=steps,
        notes=notes,
    )


def read_series(options: Options, table: TextTable, *, labelled: bool) -> ReadSeries:
    """The table's series, wide or long; without ``labelled`` no attribute is looked for.

    Raises:
        PrivateDataError: a column is missing, or a cell is no number.
    """
    if options.values["series"] in table.columns and options.values["step"] in table.columns:
        return _long(options, table, labelled=labelled)
    return _wide(options, table, labelled=labelled)


def step_columns(table: TextTable) -> list[str]:
    """Columns of steps, in order: those that end in a number, of the commonest beginning."""
    found = {name: match for name in table.columns if (match := NUMBERED.fullmatch(name))}
    if not found:
        return []
    first = Counter(match[1] for match in found.values()).most_common(1)[0][0]
    return sorted(
        (name for name, match in found.items() if match[1] == first),
        key=lambda name: int(found[name][2]),
    )


def _long(options: Options, table: TextTable, *, labelled: bool) -> ReadSeries:
    names = table.column(options.values["series"], "series=")
    order = _numbers_or_texts(table.column(options.values["step"], "step="))
    values = _numbers(table, options.values["value"], "value=")
    told = table.column(options.values["sensitive"], "sensitive=") if labelled else []
    own = options.values["owner"] if labelled else ""
    owner = table.column(own, "owner=") if own else None
    rows: dict[str, list[int]] = {}
    for row in sorted(range(len(table)), key=lambda row: order[row]):
        rows.setdefault(names[row], []).append(row)
    ordered = sorted(rows)
    for one in ordered:
        if len({order[row] for row in rows[one]}) < len(rows[one]):
            raise PrivateDataError(f"{table.path}: series {one!r} has a step twice; fix it")
    return ReadSeries(
        ordered,
        [values[rows[one]] for one in ordered],
        [[told[row] for row in rows[one]] for one in ordered] if labelled else [],
        None if owner is None else [owner[rows[one][0]] for one in ordered],
        long=True,
    )


def _wide(options: Options, table: TextTable, *, labelled: bool) -> ReadSeries:
    columns = [one for one in step_columns(table) if one != options.values["sensitive"]]
    if len(columns) < LEAST_STEPS:
        raise PrivateDataError(
            f"{table.path}: has neither columns of steps (t0, t1, ...) nor columns "
            f"{options.values['series']!r} and {options.values['step']!r}; name them with series= "
            f"and step=; there are {', '.join(table.columns)}"
        )
    values = np.stack([_numbers(table, one, "a step") for one in columns], 1)
    told = table.column(options.values["sensitive"], "sensitive=") if labelled else []
    own = options.values["owner"] if labelled else ""
    return ReadSeries(
        [f"row {row + 1}" for row in range(len(table))],
        list(values),
        [[one] * len(columns) for one in told],
        table.column(own, "owner=") if own else None,
        long=False,
    )


def _numbers(table: TextTable, name: str, what: str) -> NDArray[np.float64]:
    found = []
    for row, text in enumerate(table.column(name, what)):
        try:
            found.append(float(text) if text else math.nan)
        except ValueError:
            raise PrivateDataError(
                f"{table.path}: row {row + 1}, column {name}: {text!r} is no number; fix it"
            ) from None
    return np.array(found, np.float64)


def _numbers_or_texts(column: list[str]) -> list[tuple[float, str]]:
    """What orders a series' steps: numbers by size, anything else (dates) as texts."""
    try:
        return [(float(text), "") for text in column]
    except ValueError:
        return [(0.0, text) for text in column]


def _steps(options: Options, found: ReadSeries) -> int:
    if options.values["steps"]:
        return options.number("steps", LEAST_STEPS)
    return Counter(len(one) for one in found.values).most_common(1)[0][0]


def _pieces(found: ReadSeries, steps: int) -> tuple[list[tuple[int, int]], list[str]]:
    """Rows and starts of all pieces, and the names of series that are too short for one."""
    pieces = [
        (row, start)
        for row, one in enumerate(found.values)
        for start in range(0, len(one) - steps + 1, steps)
    ]
    return pieces, [found.names[row] for row, one in enumerate(found.values) if len(one) < steps]


def _unit(options: Options, values: NDArray[np.float64], notes: list[str]) -> float:
    if text := options.values["unit"]:
        try:
            unit = float(text)
        except ValueError:
            unit = 0.0
        if not (unit > 0 and math.isfinite(unit)):
            raise PrivateDataError(f"{options.source}: unit={text} must be a number above 0")
        return unit
    size = float(np.sqrt(np.square(values).mean()))
    if not (size > 0 and math.isfinite(size)):
        raise PrivateDataError(f"{options.path}: every value is 0 or they are too large")
    unit = float(f"{size:.0e}")
    notes.append(f"values are divided by {unit:g}, their size; unit= says another")
    return unit


def _outward(value: float, sign: int) -> float:
    """A limit with two digits, no nearer to 0 on its side than ``value``; 0 stays 0."""
    if value == 0:
        return 0.0
    scale = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return float(scale * (math.ceil(value / scale) if sign > 0 else math.floor(value / scale)))


SERIES = DatasetSpec("Time series", private=load_labelled_series)
