"""The rows of the table: which data, which unit, which preset, and what to set on top of it.

A new row is one entry here. A preset is read when a row is asked for, so a row may name one that
this version does not have; asking for it then says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedlens import simulations
from fedlens_research.framework.errors import StudyError

PRESETS = Path(simulations.__file__).parent / "presets"
STRONG, USUAL, WEAK, OPEN = "1@1e-10", "1@1e-5", "10@1e-5", "none"
PRESET = "preset"  # The guarantee of a row whose noise is left as its preset has it
PRECISION = "generator.precision"
GUARANTEES = (STRONG, USUAL, WEAK, OPEN)
"""The guarantees of the full table, as `fedlens_research.table1.guarantees` reads them."""


@dataclass(frozen=True)
class TableRow:
    """One row of the table, at every guarantee and seed."""

    name: str
    title: str  # For people to read
    preset: str  # Name of its file of settings in ``folder``
    data: str  # ``mnist`` or ``fashion-mnist``: decides networks that judge, and changes of images
    unit: str = "record"  # What the guarantee protects: ``user`` or ``record``
    users: int = 0  # Enrolled users, or silos where the unit is a record; 0 for the preset's
    settings: Mapping[str, object] = field(default_factory=dict)
    """Flat settings on top of the preset."""
    settings_at: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """More of them at single guarantees, keyed as in ``GUARANTEES``; applied last, before the
    noise is scaled."""
    guarantees: tuple[str, ...] = GUARANTEES  # The guarantees that the full table has of this row
    quick: bool = False  # Whether ``--quick`` has it
    curve: bool = False
    """Whether accuracy against the number of labelled samples is measured: not at the full table's
    guarantees after the first."""
    fault: float = 0.0  # Share of users (or records) whose images are rotated by 90 degrees
    clean: str = ""  # The row without the fault, to compare with
    provider: str = "fedlens_research.table1.federated"
    """Module that trains the row and draws from it: see `fedlens_research.table1.providers`."""
    folder: Path = PRESETS
    """Where the preset lies: beside this file where ``fedlens simulate`` cannot carry it out."""

    @property
    def preset_path(self) -> Path:
        """The preset's file."""
        return self.folder / f"{self.preset}.toml"

    @property
    def all_settings(self) -> dict[str, object]:
        """What goes on top of the preset at every guarantee."""
        known = {"data.name": self.data, "privacy.unit": self.unit}
        users = {"data.users": self.users} if self.users else {}
        return {**known, **users, **self.settings}


def _paced(usual: float, weak: float) -> dict[str, dict[str, object]]:
    """Rates of the annotator where there is less noise to be careful of."""
    return {
        USUAL: {"tasks.annotator.rate": usual},
        WEAK: {"tasks.annotator.rate": weak},
        OPEN: {"tasks.annotator.rate": weak},
    }


_SKEWED = {"data.scheme": "dirichlet", "data.alpha": 0.3}

_ALL = (
    TableRow("mnist-record", "MNIST, records", "mnist-record", "mnist", quick=True, curve=True),
    TableRow("mnist-users", "MNIST, 3,000 users", "mnist-users", "mnist", quick=True, curve=True,
        unit="user", users=3000),
    TableRow("mnist-users-dirichlet", "MNIST, 3,000 users, Dirichlet(0.3)", "mnist-users", "mnist",
        settings=_SKEWED, unit="user", users=3000),
    TableRow("mnist-users-600", "MNIST, 600 users", "mnist-users", "mnist", unit="user", users=600),
    # a user with one image is what a record is
    TableRow("mnist-users-60000", "MNIST, 60,000 users", "mnist-record", "mnist",
        unit="user", users=60_000),
    TableRow("fashion-record", "Fashion-MNIST, records", "fashion-record", "fashion-mnist",
        curve=True, settings_at=_paced(300.0, 600.0)),
    TableRow("fashion-users", "Fashion-MNIST, 3,000 users", "fashion-users", "fashion-mnist",
        unit="user", users=3000, settings_at=_paced(100.0, 250.0)),
    TableRow("mnist-record-wgan", "MNIST, records, iterative critic alone", "mnist-record-wgan",
        "mnist"),
    TableRow("mnist-users-wgan", "MNIST, 3,000 users, iterative critic alone", "mnist-users-wgan",
        "mnist", unit="user", users=3000),
    TableRow("mnist-record-fault", "MNIST, records, 30% rotated", "mnist-record", "mnist",
        guarantees=(STRONG,), fault=0.3, clean="mnist-record"),
    TableRow("mnist-users-fault", "MNIST, 3,000 users, 30% of them rotated", "mnist-users", "mnist",
        guarantees=(STRONG,), fault=0.3, clean="mnist-users", unit="user", users=3000),
    TableRow("mnist-record-paper003", "MNIST, records, arXiv:2003.00997 as published",
        "mnist-record-paper003", "mnist", guarantees=(PRESET,),
        provider="fedlens_research.table1.published", folder=Path(__file__).parent),
)  # fmt: skip

ROWS: dict[str, TableRow] = {row.name: row for row in _ALL}  # All rows, in the table's order


def chosen_rows(names: Sequence[str], *, quick: bool = False) -> tuple[TableRow, ...]:
    """The rows of these names; without names, those that this version has presets for.

    Raises:
        StudyError: a name is unknown, or its preset is not there.
    """
    if not names:
        ready = [row for row in ROWS.values() if row.preset_path.is_file()]
        chosen = [row for row in ready if row.quick or not quick]
        if not chosen:
            raise StudyError(f"none of the study's presets is in {PRESETS}")
        return tuple(chosen)
    for name in names:
        if name not in ROWS:
            raise StudyError(f"--rows {name!r}: there is no such row; rows are {', '.join(ROWS)}")
        if not ROWS[name].preset_path.is_file():
            raise StudyError(
                f"--rows {name!r}: it needs the preset {ROWS[name].preset!r}, which is not in "
                f"{ROWS[name].folder}"
            )
    return tuple(ROWS[name] for name in dict.fromkeys(names))
