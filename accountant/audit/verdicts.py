"""Findings that state an ε: canaries and membership inference beside the claim, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedlens.accountant.audit import one_run
from fedlens.accountant.audit.finding import (
    BOUND_ERROR,
    ESTIMATE_ERROR,
    AuditKind,
    AuditVerdict,
    Finding,
)
from fedlens.accountant.audit.membership import MembershipAttack
from fedlens.accountant.audit.one_run import Coins, Scores
from fedlens.accountant.audit.one_shot import separation
from fedlens.accountant.dp.profiles import gaussian_epsilon
from fedlens.accountant.wording import shown

LEAST_CONTROL_AUC = 0.95
_GUESS_SHARES = (10, 5, 2, 1)
_SIMULATED = "Simulation only: "


@dataclass(frozen=True)
class Claim:
    """What the accountant says of the schedule that was audited."""

    epsilon: float
    """An upper bound at ``delta``."""
    delta: float


def choose_guesses(canaries: int, claim: Claim) -> int:
    """How many coins to guess: the surest tenth of them, or more where that could show too little.

    Decided by the claim alone, before any score is seen, as the bound needs it.
    """
    choices = [max(2, canaries // share // 2 * 2) for share in _GUESS_SHARES]
    caps = {r: _cap(canaries, r, claim.delta) for r in choices}
    enough = [r for r in choices if caps[r] >= 1.25 * claim.epsilon]
    return enough[0] if enough else max(choices, key=lambda r: caps[r])


def _cap(canaries: int, guesses: int, delta: float, confidence: float = 1 - BOUND_ERROR) -> float:
    return one_run.cap(canaries=canaries, guesses=guesses, delta=delta, confidence=confidence)


def one_run_finding(
    scores: Scores, included: Coins, *, guesses: int, claim: Claim, confidence: float
) -> Finding:
    """The one-run lower bound beside the claim.

    Args:
        scores: float64 [m] of all canaries.
        included: bool [m], fair coins fixed beforehand.
        guesses: r, of `choose_guesses`.
        claim: at the δ of the bound.
        confidence: of the lower bound that is reported; alarms keep their own, `BOUND_ERROR`.
    """
    correct = one_run.count_correct(scores, included, guesses)
    m, at = len(scores), claim.delta
    bound, sure = (
        one_run.lower_bound(canaries=m, guesses=guesses, correct=correct, delta=at, confidence=c)
        for c in (confidence, max(confidence, 1 - BOUND_ERROR))
    )
    cap = _cap(m, guesses, at)
    said = f"{correct} of {guesses} guesses about {m} canaries were right: ε ≥ {bound:.3g}"
    above = "perhaps above the claim; audit it again"
    seems = above if bound > claim.epsilon else "which does not contradict the claim"
    words: Mapping[AuditVerdict, str] = {
        "alarm": f"{said}, above the {shown(claim.epsilon)} that is claimed: more leaks than "
        "accounted",
        "cannot-detect": f"even with every guess right, no more than ε = {cap:.3g} could have been "
        "shown",
        "nothing-found": f"{said}, {seems}",
    }
    figures = {
        "canaries": m,
        "guesses": guesses,
        "correct": correct,
        "confidence": confidence,
        "lower_bound_of_alarm": sure,
        "cap_at_confidence": _cap(m, guesses, at, confidence),
    }
    return _judged("one-run", claim, sure, words, figures, lower_bound=bound, cap=cap)


def one_shot_finding(
    scores: Scores,
    included: Coins,
    *,
    claim: Claim,
    confidence: float,
    expected: float,
    most: float,
) -> Finding:
    """The one-shot estimate beside the claim.

    Args:
        scores: float64 [m] of all canaries.
        included: bool [m].
        claim: at the δ of the estimate.
        confidence: of the interval that is reported; alarms keep their own, `ESTIMATE_ERROR`.
        expected: the separation that the mechanism as described shows.
        most: the separation without any noise.
    """
    found = separation(scores, included)
    low, high = (gaussian_epsilon(claim.delta, mu) for mu in found.interval(confidence))
    sure = gaussian_epsilon(claim.delta, found.interval(1 - 2 * ESTIMATE_ERROR)[0])
    estimate = gaussian_epsilon(claim.delta, found.mu)
    cap = gaussian_epsilon(claim.delta, most)
    said = f"the canaries' scores look like ε = {estimate:.3g} [{low:.3g}, {high:.3g}]"
    words: Mapping[AuditVerdict, str] = {
        "alarm": f"{said}, above the {shown(claim.epsilon)} that is claimed; an estimate, no bound",
        "cannot-detect": "even without any noise these canaries would look like no more than "
        f"ε = {cap:.3g}",
        "nothing-found": f"{said}; an estimate, no bound",
    }
    figures = {
        "mu": found.mu,
        "mu_error": found.error,
        "mu_expected": expected,
        "mu_without_noise": most,
        "confidence": confidence,
        "estimate_of_alarm": sure,
    }
    measured: dict[str, Any] = {"estimate": estimate, "interval": (low, high), "cap": cap}
    return _judged("one-shot", claim, sure, words, figures, **measured)


def membership_finding(
    found: MembershipAttack,
    control: MembershipAttack,
    blind: MembershipAttack,
    sure: MembershipAttack,
    *,
    cap: float,
    claim: Claim,
) -> Finding:
    """Membership inference beside the claim, with its positive control.

    Args:
        found: the attack on what was released, at the confidence asked for.
        control: the same attack on a "generator" that replays the members' own records.
        blind: the same attack on pictures of nothing; where held-out records are of other people
            than the training ones, its AUC is off 1/2 by itself.
        sure: ``found`` at the confidence of an alarm.
        cap: `membership.cap` at that confidence.
        claim: of the run.
    """
    said = (
        f"telling members from others by the samples: AUC {found.auc:.3f} ({blind.auc:.3f} by "
        f"pictures of nothing), ε ≥ {found.lower_bound:.3g}"
    )
    measured: dict[str, Any] = {"lower_bound": found.lower_bound, "cap": cap}
    words: Mapping[AuditVerdict, str] = {
        "alarm": f"{said}, above the {shown(claim.epsilon)} that is claimed",
        "cannot-detect": f"with so few members no more than ε = {cap:.3g} could have been shown",
        "nothing-found": f"{said}; this attack found nothing, which is no proof",
    }
    figures = {
        "auc": found.auc,
        "tpr_at_1pct_fpr": found.rate,
        "tpr_low": found.rate_interval[0],
        "tpr_high": found.rate_interval[1],
        "blind_auc": blind.auc,
        "control_auc": control.auc,
        "control_tpr_at_1pct_fpr": control.rate,
        "control_lower_bound": control.lower_bound,
    }
    if control.auc < LEAST_CONTROL_AUC:
        broken = (
            f"the attack is broken: on replayed training records its AUC is {control.auc:.3f}, "
            "which should be near 1"
        )
        return replace(_undetectable(broken, claim, figures), **measured)
    finding = _judged("membership", claim, sure.lower_bound, words, figures, **measured)
    return replace(finding, words=f"{_SIMULATED}{finding.words}")


def no_attack(reason: str, *, claim: Claim) -> Finding:
    """Membership inference that could not be tried, with the reason."""
    return _undetectable(f"not tried: {reason}", claim, {})


def _undetectable(words: str, claim: Claim, figures: Mapping[str, float]) -> Finding:
    plain = plain_finding("membership", claim, False, f"{_SIMULATED}{words}", figures)
    return replace(plain, verdict="cannot-detect")


def _judged(
    kind: AuditKind,
    claim: Claim,
    sure: float,
    words: Mapping[AuditVerdict, str],
    figures: Mapping[str, float],
    *,
    cap: float,
    **measured: Any,
) -> Finding:
    """What ``sure``, ε at the confidence of an alarm, says beside the claim."""
    alarm = sure > claim.epsilon
    verdict: AuditVerdict = "nothing-found" if cap > claim.epsilon else "cannot-detect"
    verdict = "alarm" if alarm else verdict
    plain = plain_finding(kind, claim, alarm, words[verdict], figures)
    return replace(plain, verdict=verdict, cap=cap, **measured)


def plain_finding(
    kind: AuditKind, claim: Claim, alarm: bool, words: str, figures: Mapping[str, float]
) -> Finding:
    """An alarm or nothing found, without any ε but the claimed one."""
    verdict: AuditVerdict = "alarm" if alarm else "nothing-found"
    return Finding(kind, claim.epsilon, claim.delta, verdict, words + ".", figures=figures)
