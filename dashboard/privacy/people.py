"""Whose privacy the runs of the workspace spend: populations, and runs that are one by themselves.

A run that names a population spends from its budget with others. One that names none is a
population of its own, with the probes that asked its users and the runs that build on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedlens.accountant.ledger.ledger import LedgerError, read_header
from fedlens.accountant.ledger.population import Population
from fedlens.accountant.ledger.prior import HEADER
from fedlens.accountant.ledger.terms import LEDGER, population_folder
from fedlens.dashboard.access.session import all_runs, store_url
from fedlens.dashboard.faults import panel
from fedlens.foundation.errors import FedlensError
from fedlens.store import RunRecord, StoreError

POPULATION, MODEL = "privacy.population", "tasks.probe.model"
SHOWN_HASH = 16
_PROBE = re.compile(r"(?P<of>.+)-probe-\d+")


@dataclass(frozen=True)
class People:
    """Those whose privacy some runs spend together."""

    key: str
    """Of the address, the officer's rules and requests: a population's identity, or a run's id."""
    name: str
    runs: tuple[RunRecord, ...]
    """Runs and probes that the stores know, the first first."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """By run id, those of their folders that were found, others' probes included."""
    population: str = ""
    """As settings name it; empty for a run that is a population by itself."""

    @property
    def alone(self) -> bool:
        """Whether it is one run and nothing else."""
        return not self.population and len(self.runs) == 1 and len(self.folders) <= 1

    def title(self) -> str:
        """What people call it, with its kind."""
        if self.population:
            return f"Population {self.name}"
        return f"Run {self.name}" if self.alone else f"Run {self.name} and what belongs to it"


def header_of(folder: Path) -> Mapping[str, Any]:
    """The header of the ledger in a folder; empty where there is none that can be read."""
    path = folder / LEDGER
    try:
        return _header(path, path.stat().st_ino)
    except OSError:
        return {}


@lru_cache(maxsize=8192)
def _header(path: Path, _number: int) -> Mapping[str, Any]:
    try:
        return read_header(path)[0]
    except (LedgerError, OSError):
        return {}


def list_people(runs: Iterable[RunRecord], folders: Mapping[str, Path]) -> list[People]:
    """All whose privacy is spent: populations first, then runs by themselves, the newest first.

    Args:
        runs: that the stores know.
        folders: of runs by id, those too that no store knows.
    """
    known = {run.run_id: run for run in runs}
    named: dict[str, list[str]] = {}
    for run_id, group in _groups(known, folders).items():
        named.setdefault(group, []).append(run_id)
    found = [
        people
        for group, ids in named.items()
        if (people := _people(group, ids, known, folders)) is not None
    ]
    newest = sorted(found, key=lambda one: (one.runs[-1].created_at, one.name), reverse=True)
    return sorted(newest, key=lambda one: not one.population)


def _groups(known: Mapping[str, RunRecord], folders: Mapping[str, Path]) -> dict[str, str]:
    """Each run's group: a population as it is named, behind a colon; or the run it begins with."""
    alone = {one: one for one in (*known, *folders) if not _named_population(known.get(one))}

    def first(one: str) -> str:
        while alone[one] != one:
            one = alone[one]
        return one

    for child, parent in _links(known, folders):
        if child in alone and parent in alone:
            alone[first(child)] = first(parent)
    return {
        one: first(one) if one in alone else _named_population(known.get(one))
        for one in (*known, *folders)
    }


def _named_population(run: RunRecord | None) -> str:
    named = "" if run is None else str(run.config.get(POPULATION) or "")
    return f":{named}" if named else ""


def _links(
    known: Mapping[str, RunRecord], folders: Mapping[str, Path]
) -> Iterator[tuple[str, str]]:
    """Runs with others about the same people: whom they asked, what they build on, whose network.

    A population counts all of this by itself.
    """
    by_folder = {folder.absolute(): run_id for run_id, folder in folders.items()}
    for run_id, folder in folders.items():
        beside = _PROBE.fullmatch(folder.name)
        if beside is not None:
            yield run_id, by_folder.get(folder.absolute().with_name(beside["of"]), "")
        if run_id in known and (model := str(known[run_id].config.get(MODEL) or "")):
            yield run_id, by_folder.get(Path(model), "")
        prior = header_of(folder).get(HEADER)
        if isinstance(prior, dict) and not prior.get("other_people"):
            yield run_id, str(prior.get("run_id", ""))


def _people(
    group: str, ids: list[str], known: Mapping[str, RunRecord], folders: Mapping[str, Path]
) -> People | None:
    runs = sorted((known[one] for one in ids if one in known), key=_age)
    if not runs:
        return None  # folders beside the store that it knows nothing of
    order = dict.fromkeys((*(run.run_id for run in runs), *ids))
    here = {one: folders[one] for one in order if one in folders}
    if group.startswith(":"):
        named = group[1:]
        return People(population_key(named), Path(named).name, tuple(runs), here, named)
    return People(group, known[group].name if group in known else group, tuple(runs), here)


def _age(run: RunRecord) -> tuple[date, bool, str]:
    """Days are all that is known of when a run began; a probe comes after what it asked."""
    return run.created_at, run.is_probe, run.name


def population_key(named: str) -> str:
    """The key of a population: the hash of its ledger's header, or of its name without one."""
    try:
        identity = read_header(population_folder(named) / LEDGER)[1]
    except (LedgerError, OSError):
        identity = sha256(named.encode()).hexdigest()
    return identity[:SHOWN_HASH]


def open_population(named: str) -> Population:
    """The population of that name, to write its officer's rules and approvals down.

    Raises:
        StoreError: it is not on this machine, or its ledger cannot be trusted.
    """
    try:
        return Population.open(population_folder(named))
    except (FedlensError, OSError) as error:
        raise StoreError(f"commands cannot be bound by it: {error}") from None


def all_people() -> list[People]:
    """Those of the workspace."""
    places = panel.run_places(store_url())
    return list_people(all_runs(), {run_id: place.path for run_id, place in places.items()})


def people_of(run_id: str) -> People | None:
    """Whose privacy a run spends; ``None`` for a run that no store knows."""
    return by_run(all_people()).get(run_id)


def by_run(people: Iterable[People]) -> dict[str, People]:
    """Whose privacy each run and probe spends, by run id."""
    return {
        run_id: one
        for one in people
        for run_id in (*(run.run_id for run in one.runs), *one.folders)
    }
