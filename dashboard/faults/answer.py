"""A diagnosis as the command gives it, checked: it comes from a file or a process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

HOPELESS = 0.5
"""Where the median fault must be in more of the users than this to be seen, the noise hides all."""


class AnswerError(ValueError):
    """Something that is no diagnosis."""


UNEXPLAINED = 0.01
"""The omnibus test's p value up to which something is left, as the diagnosis itself has it."""


@dataclass(frozen=True)
class AlternativeFault:
    """Another fault that would explain the same, less well."""

    fault: str
    """The library's name of it."""
    says: str
    likelihood: float
    """Of the sums under it, relative to under the finding."""


@dataclass(frozen=True)
class DiagnosedFault:
    """A fault that the released sums show: by its name, or as one that the library lacks."""

    fault: str
    """Empty where no fault of the library explains what was seen."""
    says: str
    amount: float | None
    share: float
    low: float | None
    high: float | None
    """None without a name."""
    q_value: float
    classes: tuple[int, ...]
    alternatives: tuple[AlternativeFault, ...] = ()
    """The likeliest first; none where all others are hardly likely."""
    certainty: float = 1.0
    """Probability that it is this fault, if it is one of the library alone."""
    probe: str = ""
    """The question to users that would confirm it; empty where the library has none."""
    probe_refusal: str = ""
    """Why the run's users cannot be asked it; empty where they can."""
    otherwise: str = ""
    """What else looks the same in released sums; empty for nothing in particular."""
    like: str = ""
    """Without a name: the fault of the library that it looks most like."""

    @property
    def named(self) -> bool:
        """Whether it is a fault of the library."""
        return bool(self.fault)


@dataclass(frozen=True)
class ShownClass:
    """A class's mean image as released sums say that it is, as base64 PNGs."""

    label: int
    before: str
    """Of the reference."""
    after: str
    change: str


@dataclass(frozen=True)
class Deviation:
    """Where and how users' images differ from the reference's."""

    where: str
    shown: tuple[ShownClass, ...]


@dataclass(frozen=True)
class DiagnosisAnswer:
    """What was found, what could not have been, and what it was compared with."""

    findings: tuple[DiagnosedFault, ...]
    """Surest first."""
    omnibus: float
    """p value of what no finding explains."""
    smallest: Mapping[str, float]
    """By fault: the smallest share of users at which it would be seen; infinite for never."""
    reference: str
    images: int
    fits: bool
    why: str
    """Where the reference does not fit: the reason."""
    releases: tuple[str, ...]
    hypotheses: int
    looks: Mapping[str, list[dict[str, str]]] = field(default_factory=dict)
    """By fault: samples before and after it, as base64 PNGs with their labels."""
    deviation: Deviation | None = None
    """Where something has no name, or nothing is claimed."""
    class_names: tuple[str, ...] = ()
    """What people call the classes; empty where they have numbers alone."""

    def to_json(self) -> dict[str, Any]:
        """In the command's own layout, as `read_answer` takes it."""
        return {
            "findings": [asdict(one) | {"classes": list(one.classes)} for one in self.findings],
            "omnibus": {"p_value": self.omnibus},
            "smallest_detectable": {
                name: share if math.isfinite(share) else None
                for name, share in self.smallest.items()
            },
            "reference": {
                "name": self.reference,
                "images": self.images,
                "fits": self.fits,
                "why": self.why,
            },
            "releases": list(self.releases),
            "hypotheses": self.hypotheses,
            "deviation": None if self.deviation is None else asdict(self.deviation),
            "class_names": list(self.class_names),
        }

    @property
    def too_noisy(self) -> bool:
        """Whether most faults could hide even in half of the users."""
        shares = sorted(self.smallest.values())
        return bool(shares) and shares[len(shares) // 2] > HOPELESS

    @property
    def unexplained(self) -> bool:
        """Whether something was found that has no name."""
        return any(not one.named for one in self.findings)

    @property
    def hint(self) -> str:
        """The whole answer in a few words."""
        if not self.fits:
            return "Reference does not fit: nothing is claimed"
        if self.findings:
            first = self.findings[0]
            more = len(self.findings) - 1
            rest = f", and {more} more" if more else ""
            about = "" if first.named else "about "
            return f"{first.says} in {about}{percent(first.share)} of users{rest}"
        if self.too_noisy:
            return "Too noisy to judge"
        return "No fault found"


def percent(share: float) -> str:
    """A share as a whole percentage; one digit more below ten."""
    if not math.isfinite(share):
        return "–"
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"


def read_answer(found: Any, looks: Any = None) -> DiagnosisAnswer:
    """The answer in an object of JSON.

    Raises:
        AnswerError: a field is missing or of another kind; it may be another version's.
    """
    try:
        reference = found["reference"]
        return DiagnosisAnswer(
            findings=tuple(_finding(one) for one in found["findings"]),
            omnibus=float(found["omnibus"]["p_value"]),
            smallest={
                str(name): math.inf if share is None else float(share)
                for name, share in found["smallest_detectable"].items()
            },
            reference=str(reference["name"]),
            images=int(reference["images"]),
            fits=bool(reference["fits"]),
            why=str(reference["why"]),
            releases=tuple(map(str, found["releases"])),
            hypotheses=int(found["hypotheses"]),
            looks=looks if isinstance(looks, dict) else {},
            deviation=_deviation(found["deviation"]),
            class_names=tuple(map(str, found.get("class_names", ()))),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerError(f"this is no diagnosis of this version: {error!r}") from None


def _finding(one: Any) -> DiagnosedFault:
    amount = one["amount"]
    return DiagnosedFault(
        fault=str(one["fault"]),
        says=str(one["says"]),
        amount=None if amount is None else float(amount),
        share=float(one["share"]),
        low=None if one["low"] is None else max(0.0, float(one["low"])),
        high=None if one["high"] is None else min(1.0, float(one["high"])),
        q_value=float(one["q_value"]),
        classes=tuple(int(number) for number in one["classes"]),
        alternatives=tuple(
            AlternativeFault(str(o["fault"]), str(o["says"]), float(o["likelihood"]))
            for o in one["alternatives"]
        ),
        certainty=float(one["certainty"]),
        probe=str(one["probe"]),
        probe_refusal=str(one["probe_refusal"]),
        otherwise=str(one["otherwise"]),
        like=str(one["like"]),
    )


def _deviation(found: Any) -> Deviation | None:
    if found is None:
        return None
    shown = [
        ShownClass(int(one["label"]), *(str(one[key]) for key in ("before", "after", "change")))
        for one in found["shown"]
    ]
    return Deviation(str(found["where"]), tuple(shown))
