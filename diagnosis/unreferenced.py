"""Which family of faults a batch of faithful samples hints at, where there is nothing to compare.

If some users' images are turned, a few of the samples of a class look like the others only once
they are turned back. So each sample is held, as it is and under every transformation of a small
library, against its nearest *other* samples of the class; it votes for the transformation that
brings it nearest, if any does. The share of votes for a family is small in sound data and rises
where a fault of the family is mixed in.

It is a hint, no finding: how many votes sound data gives depends on the kind of picture (a mirrored
zero is a zero). The levels here are of handwritten digits; `levels_of` takes them from samples of
an earlier sound run or from public data. Tilts and sizes vary by themselves, and blur, dimming or a
dead column can be undone by no transformation: of these nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.foundation.errors import WrongUse
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import FaultSetting

NEIGHBOURS = 5
LEAST = 20
"""Samples of a class below which their neighbours say nothing."""
FAMILIES: Mapping[str, tuple[tuple[str, float], ...]] = {
    "quarter turn": (("rotate90", 0.0), ("rotate270", 0.0)),
    "half turn": (("rotate180", 0.0),),
    "mirror": (("mirror", 0.0),),
    "upside down": (("upside_down", 0.0),),
    "inversion": (("invert", 0.0),),
    "sideways shift": (("shift_right", 4.0), ("shift_right", -4.0)),
    "vertical shift": (("shift_down", 4.0), ("shift_down", -4.0)),
}
"""What is tried, by the family of faults that it would undo: name and amount of each."""
FAULTS_OF: Mapping[str, tuple[str, ...]] = {
    family: tuple(dict.fromkeys(name for name, _ in tried)) for family, tried in FAMILIES.items()
}
"""The faults of the library that a family stands for."""
NATURAL = (("tilt", 20.0), ("tilt", -20.0), ("scale", 1.5), ("scale", 0.67))
"""Tried too, so that what merely varies by itself votes for none of the families."""
DIGITS: Mapping[str, float] = {
    "quarter turn": 0.006,
    "half turn": 0.028,
    "mirror": 0.030,
    "upside down": 0.010,
    "inversion": 0.001,
    "sideways shift": 0.024,
    "vertical shift": 0.011,
}
"""Largest share of votes in 1,000 samples of three sound runs of the demo, unguided."""
MARGIN, CHANCE = 1.5, 3.0
"""A share stands out above this many times its level, and this many standard deviations of chance.
"""
APART = 0.75
"""A second family that stands out this far of the first leaves open which of the two it is."""


@dataclass(frozen=True)
class FamilyHint:
    """How far a family of faults shows."""

    name: str
    faults: tuple[str, ...]
    """Names in the library of faults."""
    votes: float
    """Share of samples that are nearest to the others of their class under it; mean over classes.
    """
    limit: float
    """Above this it stands out."""

    @property
    def excess(self) -> float:
        """Votes over the limit; above 1 it stands out."""
        return self.votes / self.limit


@dataclass(frozen=True)
class UnreferencedHints:
    """What a batch of samples hints at by itself."""

    hints: tuple[FamilyHint, ...]
    """All families, those that show most first."""
    named: str
    """The family that stands out alone; empty where none does or it cannot be told from another."""
    says: str
    """The outcome in words."""


def unreferenced(
    images: Tensor, labels: Tensor, levels: Mapping[str, float] | None = None
) -> UnreferencedHints:
    """Name the family of faults that samples show by themselves, if any.

    Post-processing of samples: it costs no privacy.

    Args:
        images: faithful samples (unguided, unfiltered), float32 [n, c, h, w] in [-1, 1].
        labels: their classes, int64 [n].
        levels: votes of sound samples by family; those of digits by default.

    Raises:
        WrongUse: a class has too few samples, or the levels are of other families.
    """
    known = DIGITS if levels is None else levels
    if set(known) != set(FAMILIES):
        raise WrongUse(f"levels: give a number for each of {', '.join(FAMILIES)}")
    count, votes = len(labels), votes_of(images, labels)
    hints = [
        FamilyHint(family, FAULTS_OF[family], share, limit_of(known[family], count))
        for family, share in votes.items()
    ]
    hints.sort(key=lambda hint: -hint.excess)
    return _judged(tuple(hints))


def levels_of(images: Tensor, labels: Tensor) -> dict[str, float]:
    """The levels of sound samples, to hold others of the same kind against.

    Each is an upper bound on what the kind of picture gives, for the samples are few.
    """
    count = len(labels)
    return {
        family: share + CHANCE * math.sqrt(share / count) + CHANCE / count
        for family, share in votes_of(images, labels).items()
    }


def limit_of(level: float, count: int) -> float:
    """The share of votes above which a family stands out among ``count`` samples."""
    return MARGIN * level + CHANCE * math.sqrt(level / count)


def _judged(hints: tuple[FamilyHint, ...]) -> UnreferencedHints:
    first, second = hints[0], hints[1]
    if first.excess <= 1:
        return UnreferencedHints(
            hints, "", "no family stands out; small shares and other families cannot be seen so"
        )
    if second.excess > 1 and second.excess > APART * first.excess:
        return UnreferencedHints(
            hints,
            "",
            f"something is off, and it cannot be told whether it is a {first.name} or a "
            f"{second.name}: ask a probe",
        )
    return UnreferencedHints(
        hints, first.name, f"some samples look like a {first.name}: ask a probe to confirm it"
    )


@torch.no_grad()
def votes_of(images: Tensor, labels: Tensor) -> dict[str, float]:
    """The share of samples that vote for each family, mean over classes.

    Raises:
        WrongUse: a class has too few samples.
    """
    tried = [(family, *one) for family, ones in FAMILIES.items() for one in ones]
    tried += [("", *one) for one in NATURAL]
    classes = torch.unique(labels).tolist()
    votes = dict.fromkeys(FAMILIES, 0.0)
    for number in classes:
        own = images[labels == number]
        if len(own) < LEAST:
            raise WrongUse(f"class {number} has {len(own)} samples: give {LEAST} at least")
        gains = torch.stack(_gains(own, [(name, amount) for _, name, amount in tried]))
        most, winner = gains.max(0)
        for place, (family, _, _) in enumerate(tried):
            if family:
                won = float(((winner == place) & (most > 0)).float().mean())
                votes[family] += won / len(classes)
    return votes


def _gains(images: Tensor, tried: list[tuple[str, float]]) -> list[Tensor]:
    """How much nearer each image comes to its neighbours under each transformation, [n] each."""
    rows = _rows(images)
    before = _nearness(rows, rows)
    labels = torch.zeros(len(images), dtype=torch.int64)
    return [
        _nearness(
            _rows(FAULTS[name].applied(images, labels, FaultSetting(1, amount=amount))[0]), rows
        )
        - before
        for name, amount in tried
    ]


def _nearness(asked: Tensor, rows: Tensor) -> Tensor:
    """Mean cosine of each row to its nearest others, [n]."""
    cosines = asked @ rows.mT
    cosines.fill_diagonal_(-2.0)  # never its own neighbour
    return cosines.topk(NEIGHBOURS, 1).values.mean(1)


def _rows(images: Tensor) -> Tensor:
    """Blurred images of half the side, of length 1, [n, d]."""
    small = F.avg_pool2d(F.avg_pool2d(images + 1, 3, 1, 1), 2).flatten(1)
    rows: Tensor = small / small.norm(dim=1, keepdim=True).clamp(min=1e-6)
    return rows
