"""Household loads with occupancy, from one archive: the stand-in for the ECO data."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.mapped_arrays import unread
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateDataError, Split
from fedlens_research.loaders.load_days import HOURS, LoadDays, find_file, split_households

# A small simulation of households: people who are up or not, and what they switch on.
#
# Nothing here is fitted to anybody's measurements. It makes loads in which presence shows as it
# does in real ones (a base load always, a fridge that comes and goes, and appliances while people
# are up), so that everything which takes such data can be run and tested without any.

HOUSEHOLDS, DAYS = 12, 180
RISES = (0.02,) * 5 + (0.15, 0.35, 0.4) + (0.25,) * 8 + (0.4,) * 5 + (0.2, 0.1, 0.03)
"""Chance that a person who is not up gets up (or comes home), each hour of the day."""
RESTS = (0.7, 0.8) + (0.85,) * 4 + (0.4, 0.2) + (0.3,) * 8 + (0.12,) * 5 + (0.2, 0.35, 0.55)
"""Chance that a person who is up goes to bed (or out)."""
FRIDGE, LIGHT = 70.0, 130.0
"""Watts while they run."""
APPLIANCE_CHANCE, APPLIANCE_WATTS = 0.35, 900.0
"""Of each person who is up, each hour; the watts are a mean, drawn exponentially."""


def simulate_households(households: int = HOUSEHOLDS, days: int = DAYS, seed: int = 0) -> LoadDays:
    """``days`` days from a first of January of ``households`` homes of one to four people."""
    random = np.random.default_rng(seed)
    people = 1 + np.arange(households) % 4
    homes = [_simulate(int(count), days, random) for count in people]
    numbers = np.tile(np.arange(days), households)
    return LoadDays(
        power=np.concatenate([power for power, _ in homes]),
        active=np.concatenate([active for _, active in homes]),
        household=np.repeat(np.arange(households), days),
        day=numbers,
        weekday=numbers % 7,
    )


def _simulate(
    people: int, days: int, random: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Watts float32 [days, 24] and presence bool [days, 24] of one home."""
    up = _presence(people, days * HOURS, random)
    base = random.uniform(40, 90)
    fridge = FRIDGE * random.uniform(0.2, 0.8, len(up))
    used = random.random((len(up), people)) < APPLIANCE_CHANCE
    watts = random.exponential(APPLIANCE_WATTS, (len(up), people))
    power = base + fridge + LIGHT * up.any(1) + (up * used * watts).sum(1)
    return power.reshape(days, HOURS).astype(np.float32), up.any(1).reshape(days, HOURS)


def _presence(people: int, hours: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Who is up, bool [hours, people]: a two-state Markov chain each, by the hour of the day."""
    up = np.zeros((hours, people), np.bool_)
    draws = random.random((hours, people))
    for hour in range(1, hours):
        of_day = hour % HOURS
        up[hour] = np.where(up[hour - 1], draws[hour] >= RESTS[of_day], draws[hour] < RISES[of_day])
    return up


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
