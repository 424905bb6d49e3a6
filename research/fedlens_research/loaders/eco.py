"""The ECO layout: seconds of smart meters and of occupancy (Kleiminger et al. 2015)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.options import parse_options
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateDataError, Split
from fedlens_research.loaders.load_days import HOURS, LoadDays, split_households

SECONDS = 3600
HOUSE = re.compile(r"(\d{2})_occupancy_csv")
CLOCKS = {"no": 0, "yes": 1}
DATES = ("%d-%b-%Y", "%Y-%m-%d")

Day = tuple[int, date, NDArray[np.float32], NDArray[np.bool_]]


def load_eco(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """``eco:PATH,clock=no``: mean watts and majority occupancy of each hour.

    PATH has ``01_sm_csv/01/2012-06-27.csv`` (a line a second, all phases' watts first, -1 where the
    meter was silent) and ``01_occupancy_csv/01_summer.csv`` (a line a day: the date, then 0 or 1 a
    second), and so on for other households. Days without both, or with an hour in which the meter
    was silent, are dropped; a header line is passed over. ``clock=yes`` tells attackers the hour.

    Raises:
        PrivateDataError: when files are missing or damaged, or fewer than 4 households are left.
    """
    options = parse_options("eco", argument, {"clock": "no"})
    clock = bool(CLOCKS[options.one_of("clock", CLOCKS)])
    days = list(_days(options.path))
    if not days:
        raise PrivateDataError(
            f"{options.path} has no day with both meter and occupancy; it needs 01_sm_csv/01/"
            "2012-06-27.csv, 01_occupancy_csv/01_summer.csv and so on"
        )
    first = date(min(day.year for _, day, _, _ in days), 1, 1)
    found = LoadDays(
        power=np.stack([power for _, _, power, _ in days]),
        active=np.stack([active for _, _, _, active in days]),
        household=np.array([house for house, _, _, _ in days], np.int64),
        day=np.array([(day - first).days for _, day, _, _ in days], np.int64),
        weekday=np.array([day.weekday() for _, day, _, _ in days], np.int64),
    )
    return split_households(name, found, seed, clock=clock)


def _days(root: Path) -> Iterator[Day]:
    for folder in sorted(root.iterdir()):
        if not (match := HOUSE.fullmatch(folder.name)):
            continue
        house = match[1]
        for path in sorted(folder.glob("*.csv")):
            for day, active in _occupancy(path):
                meter = root / f"{house}_sm_csv" / house / f"{day.isoformat()}.csv"
                power = _power(meter) if meter.is_file() else None
                if power is not None:
                    yield int(house), day, power, active


def _occupancy(path: Path) -> Iterator[tuple[date, NDArray[np.bool_]]]:
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.reader(stream):
            day = _date(row[0].strip().strip("'")) if row else None
            if day is None:
                continue
            if len(row) != 1 + HOURS * SECONDS:
                raise PrivateDataError(
                    f"{path}: {day} has {len(row) - 1} values; it needs one a second, "
                    f"{HOURS * SECONDS}; fetch it again"
                )
            seconds = np.array([cell.strip() == "1" for cell in row[1:]])
            yield day, seconds.reshape(HOURS, SECONDS).mean(1) > 0.5


def _date(text: str) -> date | None:
    for form in DATES:
        try:
            return datetime.strptime(text, form).date()
        except ValueError:
            continue
    return None


def _power(path: Path) -> NDArray[np.float32] | None:
    """Mean watts of each hour, float32 [24]; None where the meter was silent for a whole hour."""
    try:
        watts = np.loadtxt(path, delimiter=",", usecols=0, ndmin=1)
    except (OSError, ValueError) as error:
        raise PrivateDataError(f"{path}: cannot be read ({error}); fetch it again") from error
    if len(watts) != HOURS * SECONDS:
        raise PrivateDataError(
            f"{path}: has {len(watts)} lines; it needs one a second, {HOURS * SECONDS}; "
            "fetch it again"
        )
    hours = watts.reshape(HOURS, SECONDS)
    heard = hours >= 0
    if not heard.any(1).all():
        return None
    means: NDArray[np.float32] = (np.where(heard, hours, 0).sum(1) / heard.sum(1)).astype(
        np.float32
    )
    return means


ECO = DatasetSpec("ECO loads", private=load_eco)
