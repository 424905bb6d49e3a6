"""Where runs lie on this machine: the store knows their samples, their folders hold the sums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedlens.diagnosis.stored_answers import releases_of, run_id_in
from fedlens.store.engine import locate

RUNS_VARIABLE = "FEDLENS_RUNS"
"""Environment variable with a folder of run folders, where they do not lie beside the store."""


@dataclass(frozen=True)
class RunPlace:
    """A run's folder on this machine."""

    run_id: str
    path: Path

    @property
    def name(self) -> str:
        """What people call it: its folder."""
        return self.path.name

    def releases(self) -> list[Path]:
        """The released sums that it kept, in the order of its rounds."""
        return releases_of(self.path)


def list_places(store_url: str) -> dict[str, RunPlace]:
    """The runs by id: in the store's folder, beside it, and where the variable says.

    A folder that cannot be read is passed over: the page then says that the run was not found.
    """
    found: dict[str, RunPlace] = {}
    for folder in _candidates(store_url):
        run_id = run_id_in(folder)
        if run_id is not None and run_id not in found:
            found[run_id] = RunPlace(run_id, folder)
    return found


def _candidates(store_url: str) -> Iterator[Path]:
    named = os.environ.get(RUNS_VARIABLE, "")
    own = locate(store_url).path
    if own is not None:
        yield own.absolute().parent
    for root in (Path(named) if named else None, own and own.absolute().parent.parent):
        if root is not None and root.is_dir():
            try:
                yield from sorted(path for path in root.iterdir() if path.is_dir())
            except OSError:
                continue
