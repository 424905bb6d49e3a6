"""Household loads with occupancy, from one archive: the stand-in for the ECO data."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from fedlens.data.attributes.household_model import simulate_households
from fedlens.data.attributes.load_days import HOURS, LoadDays, split_households
from fedlens.data.attributes.places import find_file
from fedlens.data.mapped_arrays import unread
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateDataError, Split

FILE = "household.npz"
ARRAYS = ("power_w", "active", "household", "day_of_year", "weekday")


def load_household(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """Sequences of ``household.npz``; ``household:clock`` tells the attackers the hour.

    Raises:
        PrivateDataError: when the archive is nowhere, damaged or of another layout.
    """
    return split_households(
        name, read_days(find_file("household", FILE, data_dir)), seed, clock=_clock(name, argument)
    )


def load_simulated_household(name: str, argument: str, _: Path | None, seed: int) -> Split:
    """The same of the project's own small simulation of households; needs no files."""
    return split_households(name, simulate_households(), seed, clock=_clock(name, argument))


def read_days(path: Path) -> LoadDays:
    """Days of an archive with ``power_w`` [n, 24] and the other ARRAYS.

    Raises:
        PrivateDataError: when an array is missing, damaged or of another shape.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {key: archive[key] for key in ARRAYS}
    except (OSError, ValueError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        raise PrivateDataError(
            f"{path}: no readable archive of {', '.join(ARRAYS)} ({unread(error)}); fetch it again"
        ) from error
    count = len(found["household"])
    for key, array in found.items():
        if array.shape != ((count, HOURS) if key in ("power_w", "active") else (count,)):
            raise PrivateDataError(
                f"{path}: {key} has shape {array.shape} for {count} days; give one row a day, and "
                f"{HOURS} hours of power_w and active"
            )
    return LoadDays(
        power=found["power_w"].astype(np.float32),
        active=found["active"].astype(np.bool_),
        household=found["household"].astype(np.int64),
        day=found["day_of_year"].astype(np.int64),
        weekday=found["weekday"].astype(np.int64),
    )


def _clock(name: str, argument: str) -> bool:
    if argument not in ("", "clock"):
        kind = name.partition(":")[0]
        raise PrivateDataError(f"{name}: there is {kind}, and {kind}:clock with the hour known")
    return argument == "clock"


HOUSEHOLD = DatasetSpec("Household loads", private=load_household)
SIMULATED_HOUSEHOLD = DatasetSpec("Simulated household loads", private=load_simulated_household)
