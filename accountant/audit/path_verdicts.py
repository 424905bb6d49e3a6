"""Findings about the path of an update: its clip, its cohort, its sum and its noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from fedlens.accountant.audit.finding import TEST_ERROR, AuditKind, Finding
from fedlens.accountant.audit.noise import NoiseTest
from fedlens.accountant.audit.norms import NormsTest
from fedlens.accountant.audit.sampling import SamplingTest
from fedlens.accountant.audit.verdicts import Claim, plain_finding

NORM_SLACK = 1e-3
"""What float32 and the least noise may add to a norm, relative to its bound."""
SHARE_SLACK = 0.05
"""What they may change in how many times a unit is in a sum."""


def clipping_finding(
    norms: Mapping[str, float],
    *,
    sent: float | None,
    cosine: float | None,
    taken: Sequence[str],
    refused: int,
    claim: Claim,
) -> Finding:
    """Single units, alone and too long, as they arrive; and what a hostile node can do.

    Args:
        norms: norm of what arrived over its bound, by what it was; none may be above 1.
        sent: norm over the clipping norm of a canary's update as it arrived; None without one:
            then what arrived was longer than the clip too.
        cosine: between what arrived of it and what was sent.
        taken: which replies of a hostile node the server took.
        refused: replies of honest nodes that the server refused; of clipped canaries it refuses
            none.
        claim: of the schedule.
    """
    known = norms if sent is None else {"a canary's update": sent, **norms}
    said = "; ".join(f"{name} arrived with {n:.4g} times its bound" for name, n in known.items())
    figures: dict[str, float] = {f"norm of {name}": norm for name, norm in known.items()}
    figures |= {"replies_refused": refused, "hostile_taken": len(taken)}
    if cosine is not None:
        figures["cosine"] = cosine
    wrong = ["the clip fails"] if any(n > 1 + NORM_SLACK for n in known.values()) else []
    if refused:
        wrong.append(f"the server refused {refused} replies of honest nodes")
    if taken:
        wrong.append(f"the server took a hostile node's sum that is {', '.join(taken)}")
    if wrong:
        return plain_finding("clipping", claim, True, f"{said}: {', '.join(wrong)}", figures)
    lost = sent < 1 - NORM_SLACK if sent is not None else max(norms.values()) < 1 - SHARE_SLACK
    if lost or (cosine is not None and cosine < 1 - NORM_SLACK):
        words = f"{said}, or in another direction: canaries do not get through, nothing is seen"
        found = plain_finding("clipping", claim, False, words, figures)
        return replace(found, verdict="cannot-detect")
    return plain_finding("clipping", claim, False, f"{said}, as it should", figures)


def sampling_finding(
    test: SamplingTest,
    *,
    off: float,
    residual: float,
    refused: int,
    sampling_rate: float,
    claim: Claim,
) -> Finding:
    """The tests of the cohorts, and of how often a unit is in a sum.

    Args:
        test: of `sampling_test`.
        off: the furthest that any unit's part of a sum was from none or one clipped contribution.
        residual: norm of what else was in a sum, over the clipping norm.
        refused: replies that the server refused.
        sampling_rate: q, as claimed.
        claim: of the schedule.
    """
    sure = {
        "a round's number of units": test.p_rounds,
        "the number drawn on one node": test.p_nodes,
        "the number of units drawn in all": test.p_total,
        "how often one unit was drawn": test.p_users,
        "units drawn again in the next round": test.p_overlap,
    }
    wrong = [name for name, p in sure.items() if p < TEST_ERROR]
    if off > SHARE_SLACK:
        wrong.append(f"a unit is {off:.3g} off being in the sum once or not at all")
    if residual > SHARE_SLACK:
        wrong.append(f"something else of {residual:.3g} times the clip is in the sum")
    if refused:
        wrong.append(f"the server refused {refused} replies")
    drawn, claimed = 100 * test.share, 100 * sampling_rate
    said = f"{drawn:.4g}% of the canaries were drawn, {claimed:g}% are claimed"
    words = f"{said}; wrong: {', '.join(wrong)}" if wrong else f"{said}; each is in a sum once"
    figures = {**asdict(test), "off": off, "residual": residual}
    return plain_finding("sampling", claim, bool(wrong), words, figures)


def lost_finding(kind: AuditKind, *, claim: Claim) -> Finding:
    """Canaries that cannot be told from each other, or from none: nothing is seen."""
    words = "no canary record is in what its node sums: canaries do not get through"
    return replace(plain_finding(kind, claim, False, words, {}), verdict="cannot-detect")


def noise_finding(
    test: NoiseTest,
    *,
    claim: Claim,
    priced: Callable[[float], float],
    norms: NormsTest | None = None,
    restarts_repeat: bool = False,
) -> Finding:
    """The tests of the noise beside the claim.

    Args:
        test: of `noise_test`.
        claim: of the schedule.
        priced: the accountant's ε of the same schedule, were its noise's standard deviation this
            many times the claimed one.
        norms: the tests of the histograms of norms; None where none are released.
        restarts_repeat: whether fresh processes were seen to draw the same noise.
    """
    wrong = _wrong_with(test)
    if norms is not None:
        wrong += [f"{name} (of the histograms of norms)" for name in _wrong_with(norms.noise)]
    if norms is not None and norms.p_update < TEST_ERROR:
        wrong.append("correlation between a histogram of norms and the sum beside it")
    if restarts_repeat:
        wrong.append("the same noise again after a restart")
    low, high = test.interval
    said = f"over {test.count} values the noise has {test.ratio:.4g} times its claimed deviation"
    words = f"{said}; wrong: {', '.join(wrong)}" if wrong else f"{said}; it is what is claimed"
    figures = {
        "values": test.count,
        "deviation_ratio": test.ratio,
        **{name: p for name, p in asdict(test).items() if name.startswith("p_")},
        "repeats": test.repeats,
        "restarts_repeat": restarts_repeat,
        **({} if norms is None else _norms_figures(norms)),
    }
    plain = plain_finding("noise", claim, bool(wrong), words, figures)
    return replace(plain, estimate=priced(test.ratio), interval=(priced(high), priced(low)))


def _norms_figures(norms: NormsTest) -> dict[str, float]:
    return {
        "norms_values": norms.noise.count,
        "norms_deviation_ratio": norms.noise.ratio,
        **{f"norms_{name}": p for name, p in asdict(norms.noise).items() if name[:2] == "p_"},
        "norms_p_update": norms.p_update,
    }


def _wrong_with(test: NoiseTest) -> list[str]:
    wrong = [name for name, p in _noise_chances(test).items() if p < TEST_ERROR]
    if test.repeats >= test.most_repeats:
        wrong.append(f"{test.repeats} values that occur more than once")
    return wrong


def _noise_chances(test: NoiseTest) -> dict[str, float]:
    place = f"{test.place.words} with {test.place.ratio:.3g} times the claimed deviation"
    return {
        "its variance": test.p_variance,
        "its mean": test.p_mean,
        "its shape": test.p_shape,
        "the variance of a single release": test.p_releases,
        place: test.p_coordinates,
        "correlation between releases": test.p_rounds,
        "correlation within a release": test.p_neighbours,
    }


def shared_noise_finding(p: float, tasks: Sequence[str], *, claim: Claim) -> Finding:
    """Whether two tasks have noise in common.

    Args:
        p: chance of the largest correlation between releases of two tasks, allowing for all pairs.
        tasks: their names.
        claim: of the run as a whole.
    """
    names = " and ".join(tasks)
    alarm = p < TEST_ERROR
    said = "has something in common" if alarm else "has nothing in common"
    figures = {"p_tasks": p}
    return plain_finding("noise", claim, alarm, f"the noise of {names} {said}", figures)
