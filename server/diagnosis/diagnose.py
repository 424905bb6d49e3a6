"""From a run's kept releases and a reference to named faults: post-processing alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from foundation.errors import WrongUse
from server.diagnosis.fitting import (
    Unexplained,
    joint_shares,
    left_over,
    selected,
    smallest_detectable,
    unexplained,
)
from server.diagnosis.hypotheses import Hypothesis, library
from server.diagnosis.inquiry import Inquiry, Observed, OnStep, difference_of, fitting_records
from server.diagnosis.model import LinearModel
from server.diagnosis.reference import Reference
from server.diagnosis.report import Diagnosis, FoundFault, Omnibus, ReferenceFit
from server.diagnosis.where import classes_of
from server.kept_releases import KeptRelease

READ = ("frozen",)
"""Kinds of task whose releases are read."""
FOREIGN = 0.5
"""What is left of a reference of the users' kind is smaller, relative to a median fault."""
MANY = 3
"""So many faults at once are taken for a reference of another kind."""


def diagnose(
    releases: Sequence[KeptRelease],
    reference: Reference,
    *,
    before: Sequence[KeptRelease] = (),
    on_step: OnStep | None = None,
) -> Diagnosis:
    """Name the faults that a run's releases show, and the share of users that has each.

    Args:
        releases: what the run kept.
        reference: records of the users' kind without faults; with ``before``, samples of that run.
        before: what an earlier run kept, to look at the difference alone.
        on_step: told how far it is.

    Raises:
        WrongUse: the run kept nothing that can be read, or the reference is of another schema.
    """
    observed = observed_of(releases, before)
    first = observed.releases[0]
    reference.check(first.shape, first.classes)
    records = fitting_records(observed_of(releases, ()), reference)
    inquiry = Inquiry(observed, reference, records)
    inquiry.add(library(reference.shape, reference.classes), on_step, drifts=True)
    model = inquiry.model()
    taken = selected(model, [one.fault.name for one in inquiry.hypotheses])
    places = [place for place, _ in taken]
    rest = unexplained(model, places)
    fit = judged(reference, rest, len(taken))
    kept = taken if fit.fits else []
    smallest = by_fault(inquiry.hypotheses, model)  # before more of them are added
    return Diagnosis(
        findings=tuple(findings_of(inquiry, kept)),
        omnibus=Omnibus(rest.p_value),
        smallest_detectable=smallest,
        reference=fit,
        releases=tuple(dict.fromkeys(one.task for one in observed.releases)),
        hypotheses=len(model.found),
        records_per_user=records,
    )


def observed_of(releases: Sequence[KeptRelease], before: Sequence[KeptRelease]) -> Observed:
    """The releases that can be read, or how they differ from an earlier run's."""
    read = [one for one in releases if one.request.kind in READ]
    if not read:
        raise WrongUse(
            "the run kept no release of a task of kind 'frozen': train it with one, in user mode "
            "and without a privatizer"
        )
    if before:
        read = difference_of(read, before)
    mechanism = read[0].request.mechanism
    return Observed(tuple(read), mechanism.denominator, difference=bool(before))


def judged(reference: Reference, rest: Unexplained, found: int) -> ReferenceFit:
    """Whether the reference is of the users' kind, by what is left and how much it takes to fit."""
    why = ""
    if rest.size > FOREIGN:
        why = "what no fault explains is as large as a fault in half of the users"
    elif found >= MANY:
        why = f"it takes {found} faults at once to explain the difference"
    if why:
        why += ": the reference is of another kind than the users' data, nothing is claimed"
    images = len(reference.labels)
    return ReferenceFit(reference.name, images, not why, why, round(rest.size, 4))


def findings_of(inquiry: Inquiry, taken: Sequence[tuple[int, float]]) -> list[FoundFault]:
    """What was taken up, with the amount and the classes that fit best."""
    places = [_refined(inquiry, place) for place, _ in taken]
    where = [classes_of(inquiry, place) for place in places]
    places = [found.place for found in where]
    shares = joint_shares(inquiry.model(), places)
    return [
        _finding(inquiry.hypotheses[place], shares.values[i], shares.interval(i), q, found.classes)
        for i, (place, found, (_, q)) in enumerate(zip(places, where, taken, strict=True))
    ]


def _finding(
    one: Hypothesis,
    share: float,
    interval: tuple[float, float],
    q: float,
    classes: tuple[int, ...],
) -> FoundFault:
    amount = one.variant.amount if one.fault.measure else None
    share = min(1.0, max(0.0, float(share)))
    return FoundFault(one.fault.name, one.said, amount, share, *interval, q, classes)


def _refined(inquiry: Inquiry, place: int) -> int:
    """The place of the hypothesis with the amount near this one that explains most."""
    own = inquiry.hypotheses[place]
    first = len(inquiry.hypotheses)
    near = own.between()
    if not near:
        return place
    inquiry.add(near)
    z, _ = left_over(inquiry.model(), [])
    candidates = np.array([place, *range(first, first + len(near))])
    return int(candidates[np.argmax(z[candidates])])


def by_fault(hypotheses: Sequence[Hypothesis], model: LinearModel) -> dict[str, float]:
    """Each fault's smallest detectable share: the median over the ways in which it can show."""
    shares: dict[str, list[float]] = {}
    for one, share in zip(hypotheses, smallest_detectable(model), strict=True):
        shares.setdefault(one.fault.name, []).append(float(share))
    return {name: median(values) for name, values in shares.items()}
