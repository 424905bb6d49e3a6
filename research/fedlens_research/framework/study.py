"""A study by name: one trial a seed, kept when it is finished, then a table, plots and JSON.

Within a trial rows are kept as they come (`SeedTrial.piece`): a killed study goes on after them.

A study is a module with

    COLUMNS: tuple[str, ...]        # of the printed table, keys of its rows
    SETTINGS: type                  # frozen dataclass; its fields are the keys of the TOML file
    def run_seed(settings, trial) -> list[Row]
    def draw(rows, settings, out) -> None

and a TOML file beside it, of the module's name; see `fedlens_research.framework.settings`. Other
packages add studies through entry points in the group ``fedlens.studies``, each a `Study`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

from fedlens.foundation.tables import Row
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.pieces import Piece, PieceStore, plain
from fedlens_research.framework.settings import as_mapping, read_settings
from fedlens_research.framework.store import TrialStore, digest, write_json
from fedlens_research.framework.trials import Report

ROWS, SETTINGS, TRIALS, PIECES = "rows.json", "settings.json", "trials", "pieces"
FILTERS = "filters"
VERSION = 2  # Of finished trials: raised when the same settings would measure something else


@dataclass(frozen=True)
class SeedTrial:
    """One seed of a study."""

    seed: int  # of everything that is drawn
    first: bool  # whether it is the first of the seeds, whose pictures are drawn
    data_dir: Path | None  # folder of data files; None for the usual places
    out: Path  # the study's folder, where pictures go
    report: Report  # told what is under way
    pieces: PieceStore | None = None  # where rows are kept as they come; None keeps nothing

    def piece(self, key: Mapping[str, Any], make: Callable[[], Piece]) -> Piece:
        """Rows that were kept under ``key`` (JSON), or those that ``make`` measures, kept at once.

        What several pieces are measured with is to be built when the first of them is missing.
        """
        return make() if self.pieces is None else self.pieces.piece(key, make)

    def rows(self, key: Mapping[str, Any], make: Callable[[], list[Row]]) -> list[Row]:
        """The same of rows that nothing is drawn of."""
        return self.piece(key, lambda: Piece(make())).rows

    def filter_path(self, name: str) -> Path:
        """Where a filter of this trial goes, beside the rows that were measured of it.

        ``name`` tells the trial's filters apart; other settings and seeds have files of their own.
        """
        short = digest({} if self.pieces is None else self.pieces.plan)[:8]
        clear = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
        return self.out / FILTERS / f"{clear}-seed-{self.seed}-{short}.safetensors"


class StudyModule(Protocol):
    """A study, as its module gives it."""

    COLUMNS: tuple[str, ...]
    SETTINGS: type[Any]

    def run_seed(self, settings: Any, trial: SeedTrial) -> list[Row]:
        """Train and measure one seed; pictures that need its records are drawn here."""
        ...

    def draw(self, rows: Sequence[Row], settings: Any, out: Path) -> None:
        """Draw what the rows of all seeds show."""
        ...


@dataclass(frozen=True)
class Study:
    """A study that can be run by name; light, so that help texts cost no import."""

    module: str  # name of the module that has `StudyModule`'s parts
    about: str  # one sentence for ``--help``

    def load(self) -> StudyModule:
        """The module."""
        return cast(StudyModule, importlib.import_module(self.module))

    def settings(self, *, quick: bool, changes: Mapping[str, object] | None = None) -> Any:
        """The settings of the file beside the module, and changes.

        Raises:
            StudyError: a setting is missing, unknown, of another type or out of range.
        """
        module = self.load()
        path = Path(cast(Any, module).__file__).with_suffix(".toml")
        return read_settings(module.SETTINGS, path, quick=quick, changes=changes)


def run_study(
    study: Study,
    *,
    quick: bool = False,
    changes: Mapping[str, object] | None = None,
    seeds: Sequence[int] = (0,),
    data_dir: Path | None = None,
    out: Path,
    report: Report = lambda line: None,
) -> list[Row]:
    """Run a study; rows and settings are written to ``out`` too, as JSON.

    ``changes`` are settings over those of its file. A seed that was finished in ``out`` with the
    same settings is read, not run again.

    Raises:
        StudyError: it cannot be made as asked.
    """
    settings = study.settings(quick=quick, changes=changes)
    rows = run_seeds(study, settings, seeds=seeds, data_dir=data_dir, out=out, report=report)
    write_json(out / SETTINGS, {"quick": quick, "seeds": list(seeds), **as_mapping(settings)})
    write_json(out / ROWS, rows)
    return rows


def run_seeds(
    study: Study,
    settings: Any,
    *,
    seeds: Sequence[int],
    data_dir: Path | None,
    out: Path,
    report: Report,
) -> list[Row]:
    """The rows of every seed, read where they are kept, and the study's plots; see `run_study`."""
    if not seeds:
        raise StudyError("seeds: give at least one")
    out.mkdir(parents=True, exist_ok=True)
    module, store = study.load(), TrialStore(out / TRIALS)
    rows: list[Row] = []
    for seed in seeds:
        trial = SeedTrial(seed, seed == seeds[0], data_dir, out, report)
        plan = _plan(study, settings, trial)
        kept = store.find(plan)
        if kept is None:
            trial = replace(trial, pieces=PieceStore(out / PIECES, plan))
            kept = {"rows": [plain(row) for row in module.run_seed(settings, trial)]}
            store.keep(plan, kept)
        rows += kept["rows"]
    module.draw(rows, settings, out)
    return rows


def _plan(study: Study, settings: Any, trial: SeedTrial) -> dict[str, Any]:
    where = None if trial.data_dir is None else str(trial.data_dir.absolute())
    known = {"study": study.module, "settings": as_mapping(settings), "version": VERSION}
    return {**known, "seed": trial.seed, "first": trial.first, "data_dir": where}
