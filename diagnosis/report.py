"""What a diagnosis says: findings, what is left, and what could not have been seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedlens.diagnosis.deviation import Deviation


@dataclass(frozen=True)
class Alternative:
    """Another fault that would explain the same, less well."""

    fault: str
    """Its name in the library."""
    says: str
    """It in words."""
    likelihood: float
    """How likely the releases would be under it, relative to under the finding: 0 to 1."""


@dataclass(frozen=True)
class FoundFault:
    """A fault that the releases show: by its name, or as one that the library does not hold."""

    fault: str
    """Its name in the library; empty where no fault of the library explains what was seen."""
    says: str
    """It in words, with the amount that fits best."""
    amount: float | None
    """In the fault's own measure; None where it has none."""
    share: float
    """Of the users, as far as the releases tell; without a name, as if it was `like`."""
    low: float | None
    high: float | None
    """The share's 95% interval: noise, reference, and a relative error for what is not modelled.
    None without a name: how much an unknown fault changes is unknown too."""
    q_value: float
    """False discovery rate over the library at which it was taken up."""
    classes: tuple[int, ...]
    """Where it shows; all classes where none can be told from the others, and none of data without
    labels."""
    alternatives: tuple[Alternative, ...] = ()
    """What else of the library would explain it, likeliest first; what is hardly likely is left
    out."""
    probe: str = ""
    """The question to users that would confirm it; empty where the library has none."""
    probe_refusal: str = ""
    """Why this run's users cannot be asked it; empty where they can."""
    otherwise: str = ""
    """What else looks the same in released sums, for people; empty for nothing in particular."""
    like: str = ""
    """Without a name: the fault of the library that it looks most like."""

    @property
    def named(self) -> bool:
        """Whether it is a fault of the library, and explains what was seen."""
        return bool(self.fault)

    @property
    def certainty(self) -> float:
        """Probability that it is this fault, if it is one of the library alone.

        All of them being as likely beforehand.
        """
        return 1 / (1 + sum(one.likelihood for one in self.alternatives))


@dataclass(frozen=True)
class ReferenceFit:
    """What was compared with, and whether it is of the users' kind."""

    name: str
    images: int
    fits: bool
    """Where it does not, nothing is claimed."""
    why: str
    """In words where it does not fit; empty otherwise."""
    unexplained: float
    """Size of what is left, relative to a median fault in all users."""


@dataclass(frozen=True)
class Omnibus:
    """A test of whether anything is left that no finding explains."""

    p_value: float


UNEXPLAINED = 0.01
"""The omnibus test's p value up to which something is left that no finding explains: a reference
differs a little from users in ways that no model knows, so that p values come out too small."""
RARE = 0.002
"""The q value from which an answer says how often sound users show as much."""
NO_NAME = "something that no fault of the library explains"
TOO_WEAK = "something that cannot be told from what the library does not hold"


@dataclass(frozen=True)
class Diagnosis:
    """Everything that one reading of a run's releases says. It costs no privacy."""

    findings: tuple[FoundFault, ...]
    """Surest first."""
    omnibus: Omnibus
    smallest_detectable: Mapping[str, float]
    """By fault: the share of users at which it would be found in nine of ten runs; infinite where
    no share would be."""
    reference: ReferenceFit
    releases: tuple[str, ...]
    """Tasks whose releases were read."""
    hypotheses: int
    """How many were tried."""
    records_per_user: int
    """That a user contributes, as declared or as the size of the releases says."""
    deviation: Deviation | None = None
    """Where and how users' images differ, where something has no name or nothing is claimed."""
    class_names: tuple[str, ...] = ()
    """What people call the classes; empty where they have numbers alone."""

    @property
    def unexplained(self) -> str:
        """In words, where no fault of the library explains what is there; empty otherwise."""
        first = next((one for one in self.findings if not one.named), None)
        if first is None:
            return ""
        where = f"; images are {self.deviation.where}" if self.deviation else ""
        often = ""
        if first.q_value > RARE:
            often = f"; by chance one sound run in {1 / first.q_value:.0f} shows as much"
        return f"in about {first.share:.0%} of users: {first.says}{where}{often}"

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; None for what is infinite."""
        found = asdict(self)
        found["unexplained"] = self.unexplained
        for record, one in zip(found["findings"], self.findings, strict=True):
            record |= {"named": one.named, "certainty": one.certainty}
        found["smallest_detectable"] = {
            name: share if math.isfinite(share) and share <= 1 else None
            for name, share in self.smallest_detectable.items()
        }
        return found
