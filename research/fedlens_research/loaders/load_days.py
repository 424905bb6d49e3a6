"""Households' hourly loads, by day, and their cutting into sequences of 24 hours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.data.download import DATA_VARIABLE, search_folders
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split

# Where files are looked for that are not shipped, for their licence or their size.


def find_file(kind: str, name: str, data_dir: Path | None) -> Path:
    """The first ``name`` in `search_folders` of ``kind``; nothing is downloaded.

    Raises:
        PrivateDataError: when it is in none of these places.
    """
    tried = [folder / name for folder in search_folders(kind, data_dir)]
    for path in tried:
        if path.is_file():
            return path
    raise PrivateDataError(
        f"{kind} needs {name}, which is in none of "
        f"{', '.join(str(path.parent) for path in tried)}; put it there, or name its folder with "
        f"--data-dir or {DATA_VARIABLE}"
    )


HOURS = 24
WATTS = 1000.0
"""Watts in a unit of a record: records are kilowatts."""
MOST = 20.0
"""Kilowatts that a record may have at most; a household's fuse."""
WEEKDAYS, MONTHS = 7, 12
MONTH_ENDS = (31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


@dataclass(frozen=True, eq=False)
class LoadDays:
    """Days of households, in any order.

    Attributes:
        power: float32 [n, 24], mean watts of each hour.
        active: bool [n, 24], whether someone is active (or at home) for over half of the hour.
        household: int64 [n].
        day: int64 [n], counted so that consecutive days differ by 1; 0 is the first of January.
        weekday: int64 [n], 0 to 6.
    """

    power: NDArray[np.float32]
    active: NDArray[np.bool_]
    household: NDArray[np.int64]
    day: NDArray[np.int64]
    weekday: NDArray[np.int64]


def split_households(name: str, days: LoadDays, seed: int, *, clock: bool = False) -> Split:
    """Sequences of 24 hours, half of the households for filters, a quarter each for the rest.

    **By household**: no household is in two parts, so figures are of homes that neither the filter
    nor an attacker has ever met. Households are dealt in the order of how active they are, in
    fours, so that the parts are alike.

    Sequences start at any hour and do not overlap. Were they days from midnight, an attacker could
    count the hours, and the clock alone tells who is up (see ``clock``), whatever is released.

    Args:
        name: of the source.
        days: what is known.
        seed: decides the parts and where sequences start.
        clock: give adversary and attacker the hour in which a sequence starts, besides its
            weekday and month: side information is then float32 [n, 43] instead of [n, 19].

    Raises:
        PrivateDataError: with fewer than four households or without 24 hours in a row.
    """
    random = np.random.default_rng(seed)
    parts: tuple[list[int], ...] = ([], [], [])
    ranked = _by_activity(days)
    if len(ranked) < 4:
        raise PrivateDataError(
            f"{name}: {len(ranked)} households are too few for three parts; give at least 4"
        )
    for start in range(0, len(ranked), 4):
        four = random.permutation(ranked[start : start + 4]).tolist()
        for part, house in zip((1, 2, 0, 0), four, strict=False):
            parts[part].append(house)
    return Split(*(_sequences(name, days, part, random, clock=clock) for part in parts))


def _by_activity(days: LoadDays) -> NDArray[np.int64]:
    houses = np.unique(days.household)
    shares = [days.active[days.household == house].mean() for house in houses]
    return houses[np.argsort(shares, kind="stable")]


def _sequences(
    name: str, days: LoadDays, houses: list[int], random: np.random.Generator, *, clock: bool
) -> PrivateData:
    power, active, side, owners = [], [], [], []
    for house in houses:
        for run in _runs(days, house):
            loads, presence = days.power[run].ravel(), days.active[run].ravel()
            for start in _starts(len(loads), random):
                power.append(loads[start : start + HOURS])
                active.append(presence[start : start + HOURS])
                side.append(_side(days, int(run[start // HOURS]), start % HOURS, clock=clock))
                owners.append(house)
    if not power:
        raise PrivateDataError(f"{name}: no household has {HOURS} hours in a row; give more days")
    records = torch.from_numpy(np.stack(power) / np.float32(WATTS)).clamp(0, MOST)
    return PrivateData(
        name=name,
        records=records[..., None],
        utility=torch.zeros(records.shape, dtype=torch.int64),
        sensitive=torch.from_numpy(np.stack(active).astype(np.int64)),
        side=torch.from_numpy(np.stack(side)),
        owners=torch.tensor(owners, dtype=torch.int64),
        utility_classes=1,
        sensitive_classes=2,
        low=0.0,
        high=MOST,
    )


def _runs(days: LoadDays, house: int) -> Iterator[NDArray[np.int64]]:
    """Rows of each run of consecutive days of ``house``."""
    rows = np.flatnonzero(days.household == house)
    rows = rows[np.argsort(days.day[rows], kind="stable")]
    yield from np.split(rows, np.flatnonzero(np.diff(days.day[rows]) != 1) + 1)


def _starts(hours: int, random: np.random.Generator) -> Iterator[int]:
    """Where sequences start: after the last one and 0 to 23 hours more."""
    start = int(random.integers(HOURS))
    while start + HOURS <= hours:
        yield start
        start += HOURS + int(random.integers(HOURS))


def _side(days: LoadDays, row: int, hour: int, *, clock: bool) -> NDArray[np.float32]:
    """Weekday and month of the hour a sequence starts in, and that hour, each as one of many.

    They are of the start alone: a weekday that changed on the way would tell midnight.
    """
    side = np.zeros(WEEKDAYS + MONTHS + (HOURS if clock else 0), np.float32)
    side[days.weekday[row]] = 1
    side[WEEKDAYS + int(np.searchsorted(MONTH_ENDS, days.day[row] % 365, side="right"))] = 1
    if clock:
        side[WEEKDAYS + MONTHS + hour] = 1
    return side
