"""What the benchmark measures: which questions, on which data, at which guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from fedlens.data.registry import DatasetError
from fedlens.models.faults import FAULTS
from fedlens_research.bugs.changes import CHANGES
from fedlens_research.bugs.writers import WRITERS, data_set
from fedlens_research.framework.errors import StudyError

Question = Literal["known", "unknown", "earlier", "foreign"]
"""``known``: a fault of the library. ``unknown``: the library is without it. ``earlier``: an
earlier run is subtracted. ``foreign``: the reference is of another source than users' data."""
CLASSES = {"class": (7,), "pair": (1, 7)}
"""That a fault is planted in, where it needs some."""
NEW: dict[str, tuple[str, int, int]] = {
    "shoes as 3": ("fashion-mnist", 7, 3),
    "bags as 7": ("fashion-mnist", 8, 7),
    "shirts as 5": ("fashion-mnist", 6, 5),
    "ones as shoes": ("mnist", 1, 7),
    "eights as bags": ("mnist", 8, 8),
}
"""New classes: another data set, its class, and the class under whose name its pictures are."""
DELTA, DELTAS = 1e-5, {3000: 1e-10}
"""DP δ of a run, and by size where it is another."""
LARGE = 0.1
"""Share of users from which on faults of no library are planted, and up to which faults are in the
larger federations."""
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
    outsiders: tuple[str, ...] = (
        "a frame",
        "a wave",
        "lost rows",
        "speckles",
        "double pictures",
        "diagonal mirror",
        "shoes as 3",
        "bags as 7",
        "shirts as 5",
        "ones as shoes",
        "eights as bags",
    )
    """Faults that no library has, and real new classes, of the question ``unknown``."""
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
    def world(self) -> tuple[str, int, str, bool]:
        """What trials have in common that are compared with one reference in one way.

        Sizes, ε and what a library lacks change nothing that is expensive.
        """
        return (self.data, self.seed, self.reference, self.question == "earlier")

    @property
    def delta(self) -> float:
        """DP δ of the run."""
        return DELTAS.get(self.users, DELTA)


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
    outsiders=("a frame", "a wave"),
    draws=10,
    clean=20,
)
NAMES = replace(
    FULL,
    data=(*FULL.data, *WRITERS),
    users=(1000,),
    epsilons=(2.0,),
    shares=(0.05, 0.1, 0.3),
    seeds=(0,),
    questions=("known", "unknown"),
    few=(),
    outsiders=(*FULL.outsiders[:6], *CHANGES),
    draws=3,
    clean=20,
)
"""Whether names are right: the library's faults, and those that stand in no library."""
LEFT_OUT_OF_QUICK = (
    "other faults, shares, ε, 3,000 users, MNIST and Fashion-MNIST, more than one seed, an\n"
    "earlier run as reference, and really trained runs"
)


def trials_of(plan: BugPlan) -> Iterator[BugTrial]:
    """All trials; those of the first seed come first, so that breadth comes before depth."""
    for seed in plan.seeds:
        for data in plan.data:
            for question in plan.questions:
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
    if question == "unknown":
        faults += tuple(f for f in plan.outsiders if may_be_planted(f, data, plan.data))
    clean = () if question == "unknown" else ("",)
    for users in (WRITERS[data],) if data in WRITERS else sizes:
        shares = shares_of(plan, question, users)
        for reference in references:
            for fault in (*clean, *faults):
                asked, draws = (shares, plan.draws) if fault else ((0.0,), plan.clean)
                for epsilon in epsilons:
                    yield BugTrial(
                        question, data, users, seed, epsilon, fault, reference, asked, draws
                    )


def shares_of(plan: BugPlan, question: Question, users: int) -> tuple[float, ...]:
    """Small ones of many users, large ones of faults that are in no library."""
    if question == "unknown":
        return tuple(share for share in plan.shares if share >= LARGE)
    if users > min(plan.users):
        return tuple(share for share in plan.shares if share <= LARGE)
    return plan.shares


def may_be_planted(fault: str, data: str, known: tuple[str, ...]) -> bool:
    """Whether users of this data can have it: a new class is of other data, which must be there."""
    if fault not in NEW:
        return True
    source = NEW[fault][0]
    return source in known and source != data


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
            data_set(name, data_dir)
        except DatasetError:
            continue
        found.append(name)
    return tuple(found) or (EMBEDDED,)
