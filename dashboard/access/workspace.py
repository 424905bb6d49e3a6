"""All that lies below a folder: the runs' folders, and the stores that know the runs.

The dashboard is started on one store, which holds accounts, sessions and the log. The runs of other
stores below the folder are shown beside its own; their labels and findings stay where they are.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from fedlens.diagnosis.stored_answers import LEDGER
from fedlens.store import RunRecord, Store, StoreError, open_store

RUNS_VARIABLE = "FEDLENS_RUNS"
"""Environment variable with the folder that is looked through."""
STORE_FILE = "store.db"
DEEPEST = 5
"""Levels of folders that are looked through."""
MOST_FOLDERS = 20_000
LOOK_AGAIN_SECONDS = 3.0


@dataclass(frozen=True)
class Found:
    """What lies below a folder."""

    runs: tuple[Path, ...] = ()
    """Folders of runs."""
    stores: tuple[Path, ...] = ()
    """Files of stores."""
    whole: bool = True
    """Whether all folders were looked through; where there are too many, the last are not."""


def look_through(root: Path) -> Found:
    """Folders of runs and files of stores in a folder and below it, by name.

    What a run keeps in its own folder is not looked through, nor are hidden folders, nor what
    cannot be read.
    """
    runs: list[Path] = []
    stores: list[Path] = []
    for seen, (folder, files) in enumerate(_walk(root)):
        if seen >= MOST_FOLDERS:
            return Found(tuple(runs), tuple(stores), whole=False)
        if LEDGER in files:
            runs.append(folder)
        if STORE_FILE in files:
            stores.append(folder / STORE_FILE)
    return Found(tuple(runs), tuple(stores))


def _walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    start = len(root.parts)
    for name, folders, files in os.walk(root):
        folder = Path(name)
        below = LEDGER not in files and len(folder.parts) - start < DEEPEST
        folders[:] = sorted(one for one in folders if below and not one.startswith("."))
        yield folder, files


@lru_cache(maxsize=8)
def _looked_through(root: Path, _turn: int) -> Found:
    return look_through(root)


def found_below() -> Found:
    """What lies below the folder that the variable names, looked for every few seconds."""
    named = os.environ.get(RUNS_VARIABLE, "")
    if not named:
        return Found()
    return _looked_through(Path(named).absolute(), int(time.monotonic() / LOOK_AGAIN_SECONDS))


@dataclass
class OpenStores:
    """Stores of the workspace, each opened once."""

    _open: dict[tuple[str, int], Store] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Why a store could not be opened, by its path."""

    def others(self, home: Store) -> list[Store]:
        """The stores below the folder, without the one that the dashboard was started on."""
        own = _number(Path(home.place))
        found = ((path, _number(path)) for path in found_below().stores)
        opened = [self._opened(path, number) for path, number in found if number not in (own, 0)]
        return [one for one in opened if one is not None]

    def _opened(self, path: Path, number: int) -> Store | None:
        key = (str(path), number)
        with self._lock:
            if key not in self._open:
                try:
                    self._open[key] = open_store(path)
                    self.unreadable.pop(key[0], None)
                except StoreError as error:  # being made just now, of another version, damaged
                    self.unreadable[key[0]] = str(error)
            return self._open.get(key)


def _number(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


STORES = OpenStores()
"""Of this process: pages and the labelling desk look at the same ones."""


def all_stores(home: Store) -> list[Store]:
    """The stores of the workspace that can be read, the dashboard's own first."""
    return [home, *STORES.others(home)]


def runs_by_store(
    home: Store, *, with_samples: bool = False
) -> list[tuple[Store, list[RunRecord]]]:
    """Each store of the workspace with its runs; a run that several know is the first one's.

    A store that cannot be read just now is left out; what is wrong with its own store, a page says.

    Args:
        home: the dashboard's own store.
        with_samples: only runs that have samples.
    """
    known: set[str] = set()
    found = []
    for store in all_stores(home):
        try:
            there = store.runs(with_samples=with_samples)
            runs = [run for run in there if run.run_id not in known]
        except StoreError:
            if store is home:
                raise
            continue
        known |= {run.run_id for run in runs}
        found.append((store, runs))
    return found


def owner_of(home: Store, run_id: str) -> Store:
    """The store of the workspace that knows a run; the dashboard's own where none does."""
    others = STORES.others(home)
    for one in (home, *others) if others else ():
        with suppress(StoreError):
            one.run(run_id)
            return one
    return home
