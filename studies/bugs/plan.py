"""What the benchmark measures: which questions, on which data, at which guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from client.datasets.registry import DatasetError, load
from models.faults import FAULTS
from studies.framework.errors import StudyError

Question = Literal["known", "unknown", "earlier", "foreign"]
"""``known``: a fault of the library. ``unknown``: the library is without it. ``earlier``: an
earlier run is subtracted. ``foreign``: the reference is of another source than users' data."""
CLASSES = {"class": (7,), "pair": (1, 7)}
"""That a fault is planted in, where it needs some."""
EMBEDDED = "embedded"
SCANS, CLOTHES = "8x8 scans", "fashion-mnist"
"""References of another source: sklearn's digits enlarged, and clothes with as many classes."""


@dataclass(frozen=True)
class BugPlan:
    """Everything that is to be measured by draws."""

    data: tuple[str, ...]
    users: tuple[int, ...]
    epsilons: tuple[float, ...]
    shares: tuple[float, ...]
    """Of users, above 0."""
    seeds: tuple[int, ...]
    """Each has users, a reference and stand-ins of its own."""
    faults: tuple[str, ...]
    questions: tuple[Question, ...] = ("known", "unknown", "earlier", "foreign")
    few: tuple[str, ...] = ("rotate90", "invert", "stuck_column", "shift_right", "random_labels")
    """Faults of the questions other than ``known``."""
    fewer_epsilons: tuple[float, ...] = (2.0,)
    """Of the questions other than ``known``."""
    draws: int = 10
    """A seed, of runs with a fault."""
    clean: int = 50
    """A seed, of runs without."""

    def check(self) -> None:
        """Refuse what cannot be measured.

        Raises:
            StudyError: an argument is out of range.
        """
        if unknown := [name for name in self.faults if name not in FAULTS]:
            raise StudyError(
                f"--faults: there is no fault {unknown[0]!r}: choose of " + ", ".join(FAULTS)
            )
        if not all(0 < share <= 1 for share in self.shares):
            raise StudyError(f"shares {self.shares}: give shares of users above 0, at most 1")


@dataclass(frozen=True)
class BugTrial:
    """One question about one fault in one federation: all shares of it."""

    question: Question
    data: str
    users: int
    seed: int
    epsilon: float
    fault: str
    """Empty for clean data."""
    reference: str = ""
    """Of another source, where the question is that; empty for the data's own test images."""
    shares: tuple[float, ...] = (0.0,)
    draws: int = 10

    @property
    def world(self) -> tuple[str, str, int, int, str, str]:
        """What trials of one federation beside one reference have in common."""
        left_out = self.fault if self.question == "unknown" else ""
        return (
            self.question,
            self.data,
            self.users,
            self.seed,
            self.reference,
            left_out,
        )


FULL = BugPlan(
    data=("mnist", "fashion-mnist"),
    users=(1000, 3000),
    epsilons=(0.5, 1.0, 2.0, 8.0),
    shares=(0.02, 0.05, 0.1, 0.2, 0.3),
    seeds=(0, 1, 2),
    faults=tuple(name for name in FAULTS if not FAULTS[name].colours),
)
QUICK = replace(
    FULL,
    data=(EMBEDDED,),
    users=(1000,),
    epsilons=(1.0, 2.0),
    shares=(0.1, 0.3),
    seeds=(0,),
    faults=(
        "rotate90",
        "mirror",
        "tilt",
        "shift_right",
        "invert",
        "blur",
        "stuck_column",
        "swap_labels",
    ),
    questions=("known", "unknown", "foreign"),
    few=("rotate90", "stuck_column"),
    draws=10,
    clean=20,
)
LEFT_OUT_OF_QUICK = (
    "other faults, shares, ε, 3,000 users, MNIST and Fashion-MNIST, more than one seed, an\n"
    "earlier run as reference, and really trained runs"
)


def trials_of(plan: BugPlan) -> Iterator[BugTrial]:
    """All trials; those of the first seed come first, so that breadth comes before depth."""
    for seed in plan.seeds:
        for question in plan.questions:
            for data in plan.data:
                yield from _asked(plan, question, data, seed)


def _asked(plan: BugPlan, question: Question, data: str, seed: int) -> Iterator[BugTrial]:
    known = question == "known"
    epsilons = plan.epsilons if known else plan.fewer_epsilons
    sizes = plan.users if known else plan.users[:1]
    faults = plan.faults if known else tuple(f for f in plan.few if f in plan.faults)
    references: tuple[str, ...] = ("",)
    if question == "foreign":
        references = foreign_to(data, plan.data)
        faults = faults[:1]
    clean = () if question == "unknown" else ("",)
    for users in sizes:
        for reference in references:
            for fault in (*clean, *faults):
                shares, draws = (plan.shares, plan.draws) if fault else ((0.0,), plan.clean)
                for epsilon in epsilons:
                    yield BugTrial(
                        question, data, users, seed, epsilon, fault, reference, shares, draws
                    )


def foreign_to(data: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """References of another source than this data's."""
    if data == "fashion-mnist":
        return ("mnist",) if "mnist" in known else ()
    return (SCANS, CLOTHES) if CLOTHES in known else (SCANS,)


def found_data(names: tuple[str, ...], data_dir: str) -> tuple[str, ...]:
    """The data sets that are there; the embedded digits where none is."""
    found = []
    for name in names:
        try:
            load(name, data_dir or None)
        except DatasetError:
            continue
        found.append(name)
    return tuple(found) or (EMBEDDED,)
