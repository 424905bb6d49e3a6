"""From a run's kept releases and a reference to named faults: post-processing alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from scipy.special import chdtrc

from fedlens.diagnosis.agreement import agreement
from fedlens.diagnosis.deviation import deviation_of
from fedlens.diagnosis.evidence import observed_of
from fedlens.diagnosis.first_look import first_look
from fedlens.diagnosis.fitting import (
    MOST,
    Unexplained,
    joint_shares,
    left_over,
    other_changes,
    smallest_detectable,
    strongest,
    unexplained,
)
from fedlens.diagnosis.hypotheses import Hypothesis, hypotheses_of, library
from fedlens.diagnosis.inquiry import Inquiry, OnStage, OnStep, fitting_records
from fedlens.diagnosis.model import LinearModel
from fedlens.diagnosis.reference import Reference
from fedlens.diagnosis.report import (
    NO_NAME,
    TOO_WEAK,
    UNEXPLAINED,
    Alternative,
    Diagnosis,
    FoundFault,
    Omnibus,
    ReferenceFit,
)
from fedlens.diagnosis.surprises import UNNAMED
from fedlens.diagnosis.threads import one_thread_each
from fedlens.foundation.memory import give_back_memory
from fedlens.models.faults.protocol import Fault
from fedlens.models.probes.asking import parse_probe
from fedlens.server.round.releases import ArchivedRelease

# In which classes a fault shows.

UNEVEN = 1e-3
"""p value below which shares by class are taken to differ."""
SURE = 3.0
"""Standard errors above zero that a class's own share is, where the fault shows in it."""


@dataclass(frozen=True)
class Where:
    """The hypothesis that fits best, and the classes that it is about."""

    place: int
    classes: tuple[int, ...]


def classes_of(inquiry: Inquiry, place: int) -> Where:
    """The classes in which a fault shows; all, where the classes do not differ.

    None of data without labels.

    It is looked at by all of the reference's users, which the library's changes of images are not.
    Each class's own share is estimated. Where they differ by more than chance, the fault is taken
    to be in the classes whose share is well above zero, or may be as large as in those.
    """
    one, count = inquiry.hypotheses[place], inquiry.classes
    if one.fault.kind == "label":
        return Where(place, classes_about(one, count))
    everywhere = Where(len(inquiry.hypotheses), classes_about(one, count))
    if one.fault.takes != "any" or count < 2:
        inquiry.add([one])
        return everywhere
    first = everywhere.place + 1
    inquiry.add([one, *(one.of_class(number) for number in range(count))])
    model = inquiry.model()
    own = joint_shares(model, range(first, first + count))
    weights = 1 / own.errors**2
    mean = float((weights @ own.values) / weights.sum())
    uneven = float((weights * (own.values - mean) ** 2).sum())
    sure = own.values > SURE * own.errors
    level = float(weights[sure] @ own.values[sure] / weights[sure].sum()) if sure.any() else 0.0
    open_ = own.values + SURE * own.errors > level  # too uncertain to be told from the sure ones
    shown = tuple(int(c) for c in np.flatnonzero(sure | open_))
    if chdtrc(count - 1, uneven) > UNEVEN or not sure.any() or len(shown) == count:
        return everywhere
    inquiry.add([Hypothesis(one.fault, replace(one.variant, chosen=shown))])
    return Where(len(inquiry.hypotheses) - 1, shown)


def classes_about(one: Hypothesis, classes: int) -> tuple[int, ...]:
    """The classes that a hypothesis is about; all, unless it names some; none without labels."""
    return one.variant.chosen or tuple(range(classes)) * (classes > 1)


OnLook = Callable[[str], None]
"""Told what stands out at first sight, in words."""
FOREIGN = 0.35
"""What is left of a reference of the users' kind is smaller, relative to a median fault."""
HARDLY = 1e-3
"""Relative likelihood below which another explanation is not worth a word."""
MOST_ALTERNATIVES = 3
MANY = 3
"""So many faults at once are taken for a reference of another kind."""


def diagnose(
    releases: Sequence[ArchivedRelease],
    reference: Reference,
    *,
    before: Sequence[ArchivedRelease] = (),
    more: Sequence[Fault] = (),
    on_step: OnStep | None = None,
    on_stage: OnStage | None = None,
    on_look: OnLook | None = None,
    guessed: bool = False,
    stored_at: Path | None = None,
    class_names: Sequence[str] = (),
) -> Diagnosis:
    """Name the faults that a run's releases show, and the share of users that has each.

    Args:
        releases: what the run kept.
        reference: records of the users' kind without faults; with ``before``, samples of that run.
        before: what an earlier run kept, to look at the difference alone.
        more: faults beside those of the library.
        on_step: told how far it is.
        on_stage: told what it turns to.
        on_look: told what stands out at first sight, in words; no look is taken for nobody.
        guessed: whether how many users a release is of is a guess, as on a side of a split.
        stored_at: folder where what the library's changes of images change is stored for the next
            time, where the reference is nobody's secret.
        class_names: what people call the classes; empty where they have numbers alone.

    Raises:
        WrongUse: the run kept nothing that can be read, or the reference is of another schema.
    """
    begin = on_stage or _unheard
    observed = observed_of(releases, before)
    if guessed:
        observed = replace(observed, guessed=True)
    first = observed.first
    reference.check(first.shape, first.classes)
    begin("look")
    tried = library(reference.shape, reference.classes)
    tried += hypotheses_of(more, reference.shape, reference.classes)
    with one_thread_each():
        records = fitting_records(observed_of(releases), reference)
        said = first_look(observed, reference, records, tried) if on_look else ""
        if on_look is not None and said:
            on_look(said)
        give_back_memory(cycles=False)
        begin("fits")
        inquiry = Inquiry(
            observed,
            reference,
            records,
            tried,
            on_step,
            stored_at=stored_at,
            class_names=class_names,
        )
        return concluded(inquiry, reference, begin)


def _unheard(_: str) -> None:
    """Where it is told to nothing."""


def concluded(inquiry: Inquiry, reference: Reference, begin: OnStage = _unheard) -> Diagnosis:
    """What an inquiry into the whole library says; ``begin`` is told what it turns to."""
    begin("findings")
    smallest = by_fault(inquiry, inquiry.model())  # before more of them are added
    taken = _taken(inquiry)
    begin("omnibus")
    model, places = inquiry.model(), [one.place for one in taken]
    rest = unexplained(model, places, inquiry.named)
    fit = judged(reference, rest, len(taken))
    explained = explains(rest.p_value, agreement(inquiry, places))
    findings: list[FoundFault] = []
    if fit.fits and explained:
        findings = findings_of(inquiry, taken)
    elif fit.fits:
        first = taken[0] if taken else _nearest(inquiry, model, rest)
        alone = joint_shares(inquiry.model(), [first.place]).values[0]
        findings = [unnamed(inquiry, first, NO_NAME, alone)]
    known = fit.fits and all(one.named for one in findings)
    return Diagnosis(
        findings=tuple(findings),
        omnibus=Omnibus(rest.p_value),
        smallest_detectable=smallest,
        reference=fit,
        releases=inquiry.observed.tasks,
        hypotheses=inquiry.named,
        records_per_user=inquiry.reference.records,
        deviation=None if known else deviation_of(inquiry, model),
        class_names=inquiry.class_names,
    )


AGREED = 0.01
"""The p value up to which parts of the sums tell different shares of what was found."""
NAMED = 1e-5
"""The largest q value of a finding with a name."""
OTHER = 0.2
"""The p value up to which other changes of images explain a finding better than its name does. A
fault that is in no library and in a tenth of a thousand users leaves as much in four of five
cases, one of the library in one of ten (MNIST; of real writers in somewhat more)."""
STRONG, OTHER_THEN = 1e-25, 0.02
"""From this q value on a finding is so strong that another change would have left much more: there
the small p values are those of what no model of the users knows."""


ALIKE = 0.5
"""Of the share of a finding with a name: where another change of images without one is in more of
the users than so much of it, the two may be one fault that is in no library."""


def sure_names(
    q_values: Sequence[float], shares: Sequence[float], kinds: Sequence[str], other: float
) -> list[bool]:
    """Which findings have a name, where together they explain what was seen.

    Args:
        q_values: of the findings.
        shares: of the users, fitted together.
        kinds: what each changes, as `Fault.kind` says.
        other: p value of a test that no other changes of images explain them better.
    """
    sure = [q <= NAMED and other > (OTHER_THEN if q <= STRONG else OTHER) for q in q_values]
    pairs = zip(sure, shares, kinds, strict=True)
    most = max((share for named, share, kind in pairs if not named and kind == "image"), default=0)
    return [named and ALIKE * s >= most for named, s in zip(sure, shares, strict=True)]


def explains(left: float, agreed: float) -> bool:
    """Whether what was found, or that there is nothing, explains what was seen.

    Args:
        left: p value of the omnibus test.
        agreed: p value of a test that all parts of the sums tell the same shares.
    """
    return left > UNEXPLAINED and agreed > AGREED


def _nearest(inquiry: Inquiry, model: LinearModel, rest: Unexplained) -> Taken:
    """The hypothesis that what is left looks most like, where none was needed."""
    place = int(np.argmax(left_over(model, []).z[: inquiry.named]))
    return Taken(place, classes_about(inquiry.hypotheses[place], inquiry.classes), rest.p_value)


def unnamed(inquiry: Inquiry, taken: Taken, why: str, share: float) -> FoundFault:
    """What may be no fault of the library, with the one that it looks most like.

    Args:
        inquiry: with what was observed.
        taken: the hypothesis that it looks most like.
        why: it has no name, in words.
        share: of the users, as if it was that one.
    """
    like = inquiry.hypotheses[taken.place]
    question = question_of(like, taken.classes, inquiry.classes)
    return FoundFault(
        fault="",
        says=f"{why}; it looks most like {inquiry.describe(taken.place)}",
        amount=None,
        share=min(1.0, max(0.0, float(share))),
        low=None,
        high=None,
        q_value=taken.q_value,
        classes=taken.classes,
        probe=question or "recognised" * (inquiry.classes > 1),
        like=like.fault.name,
    )


@dataclass(frozen=True)
class Taken:
    """A hypothesis that is needed, with the amount and the classes that fit best."""

    place: int
    classes: tuple[int, ...]
    q_value: float


def _taken(inquiry: Inquiry) -> list[Taken]:
    """What is needed, surest first; each fits as well as it can before the next is looked for."""
    taken: list[Taken] = []
    while len(taken) < MOST:
        groups = [one.fault.name for one in inquiry.hypotheses]
        chosen = [one.place for one in taken]
        found = strongest(inquiry.model(), groups, chosen, inquiry.named)
        if found is None:
            break
        where = classes_of(inquiry, _refined(inquiry, found[0]))
        taken.append(Taken(where.place, where.classes, found[1]))
    return taken


def judged(reference: Reference, rest: Unexplained, found: int) -> ReferenceFit:
    """Whether the reference is of the users' kind, by what is left and how much it takes to fit."""
    why = ""
    if rest.size > FOREIGN:
        why = "what no fault explains is as large as a fault in a third of the users"
    elif found >= MANY:
        why = f"it takes {found} faults at once to explain the difference"
    if why:
        why += (
            ": the reference is of another kind than the users' data, or these have a fault that "
            "the library does not hold; nothing is claimed. Hold the run against an earlier one"
        )
    images = len(reference.labels)
    return ReferenceFit(reference.name, images, not why, why, round(rest.size, 4))


def findings_of(inquiry: Inquiry, taken: Sequence[Taken]) -> list[FoundFault]:
    """What was taken up, fitted together; of what is too weak for a name the surest alone."""
    model, places = inquiry.model(), [one.place for one in taken]
    if not taken:
        return []
    shares = joint_shares(model, places)
    kinds = [inquiry.hypotheses[place].fault.kind for place in places]
    other = other_changes(model, places, inquiry.others)
    sure = sure_names([one.q_value for one in taken], shares.values.tolist(), kinds, other)
    named = [
        _finding(
            inquiry.hypotheses[one.place],
            inquiry.describe(one.place),
            shares.values[i],
            shares.interval(i),
            one.q_value,
            one.classes,
            alternatives_of(inquiry, model, places, i),
            inquiry.classes,
        )
        for i, one in enumerate(taken)
        if sure[i]
    ]
    weak = [i for i, name in enumerate(sure) if not name][:1]
    return named + [unnamed(inquiry, taken[i], TOO_WEAK, shares.values[i]) for i in weak]


def _finding(
    one: Hypothesis,
    says: str,
    share: float,
    interval: tuple[float, float],
    q: float,
    classes: tuple[int, ...],
    alternatives: tuple[Alternative, ...],
    total: int,
) -> FoundFault:
    share = min(1.0, max(0.0, float(share)))
    return FoundFault(
        one.fault.name,
        says,
        one.variant.amount if one.fault.measure else None,
        share,
        *interval,
        q,
        classes,
        alternatives,
        question_of(one, classes, total),
        otherwise=one.fault.otherwise,
    )


def question_of(one: Hypothesis, classes: tuple[int, ...], total: int) -> str:
    """The probe that tells whether it is this fault; empty where there is none.

    Args:
        one: the fault.
        classes: where it shows.
        total: number of classes; of data without labels nothing is asked that needs them.
    """
    question = one.fault.question(one.variant.amount if one.fault.measure else None, classes, total)
    return "" if total < 2 and question and parse_probe(question).about_labels else question


def alternatives_of(
    inquiry: Inquiry, model: LinearModel, taken: Sequence[int], which: int
) -> tuple[Alternative, ...]:
    """Faults that would explain nearly as much as one that was taken, the others being fitted.

    Args:
        inquiry: with the model's hypotheses.
        model: all of them about what was observed.
        taken: their places.
        which: the one of them that is asked about.
    """
    left = left_over(model, [place for place in taken if place != taken[which]])
    used = {UNNAMED} | {inquiry.hypotheses[place].fault.name for place in taken}
    best: dict[str, int] = {}
    for place, one in enumerate(inquiry.hypotheses):
        name = one.fault.name
        if name not in used and left.z[place] > max(0.0, left.z[best.get(name, place)] - 1e-12):
            best[name] = place
    most = left.z[taken[which]] ** 2
    likely = {place: math.exp(min(0.0, (left.z[place] ** 2 - most) / 2)) for place in best.values()}
    kept = sorted((p for p in likely if likely[p] > HARDLY), key=lambda p: -likely[p])
    return tuple(
        Alternative(inquiry.hypotheses[p].fault.name, inquiry.describe(p), likely[p])
        for p in kept[:MOST_ALTERNATIVES]
    )


def _refined(inquiry: Inquiry, place: int) -> int:
    """The place of the hypothesis with the amount near this one that explains most."""
    own = inquiry.hypotheses[place]
    first = len(inquiry.hypotheses)
    near = own.between()
    if not near:
        return place
    inquiry.add(near)
    z = left_over(inquiry.model(), []).z
    candidates = np.array([place, *range(first, first + len(near))])
    return int(candidates[np.argmax(z[candidates])])


def by_fault(inquiry: Inquiry, model: LinearModel) -> dict[str, float]:
    """Each fault's smallest detectable share: the median over the ways in which it can show."""
    shares: dict[str, list[float]] = {}
    named = inquiry.hypotheses[: inquiry.named]
    for one, share in zip(named, smallest_detectable(model, len(named)), strict=True):
        shares.setdefault(one.fault.name, []).append(float(share))
    return {name: median(values) for name, values in shares.items()}
