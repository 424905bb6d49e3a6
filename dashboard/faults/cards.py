"""A diagnosis as cards: what was found first, what could not have been seen last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedlens.accountant.ledger.population import Population
from fedlens.accountant.ledger.terms import population_folder
from fedlens.accountant.wording import percentage
from fedlens.dashboard.faults.answer import (
    UNEXPLAINED,
    DiagnosedFault,
    DiagnosisAnswer,
    ShownClass,
    percent,
)
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import picture, tag, text
from fedlens.diagnosis.probe_offers import ProbeOffer, probe_offer
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.names import call_class, call_classes
from fedlens.foundation.unlabelled import UNLABELLED
from fedlens.store import RunRecord


def render_probe_offer(finding: DiagnosedFault, run: RunRecord, path: str) -> None:
    """Put a card for the probe that would confirm a finding on the page, where there is one.

    A page asks nothing of users. It shows the command, so that what is spent is spent by a person
    with the right to, from the ledger's own machine.
    """
    offer = offer_for(finding, run.config, run.run_id)
    if offer is not None:
        split = run.config.get("split.side", "none") != "none"  # whose users cannot be counted
        put_card(offer_card(offer, str(run.config.get("split.model")) if split else path))


def offer_for(
    finding: DiagnosedFault, config: Mapping[str, object], run_id: str = ""
) -> ProbeOffer | None:
    """The probe that would confirm a finding of a run with these settings, priced.

    A run that another program entered may lack settings: nothing can be priced then.
    """
    if not {"data.users", "privacy.delta"} <= set(config):
        return None
    return probe_offer(
        finding.probe,
        users=int(str(config["data.users"])),
        delta=float(str(config["privacy.delta"])),
        population=_population(str(config.get("privacy.population", ""))),
        asked=str(config.get("data.slice", "")),
        run_id=run_id,
    )


def _population(named: str) -> Population | None:
    """The population that pays, where it can be read on this machine."""
    if not named:
        return None
    try:
        return Population.read(population_folder(named))
    except (FedlensError, OSError):
        return None


def refused_card(finding: DiagnosedFault) -> str:
    """Why the probe that would confirm a finding is not offered, as a card's inner HTML."""
    why = finding.probe_refusal[:1].upper() + finding.probe_refusal[1:]
    return (
        '<p class="over">Confirm it</p><h2>These users cannot be asked</h2>'
        f"<p>{text(why)}.</p>"
        f'<dl class="facts"><dt>Probe</dt><dd><code>{text(finding.probe)}</code></dd></dl>'
    )


def offer_card(offer: ProbeOffer, path: str) -> str:
    """The offer as a card's inner HTML."""
    price = offer.price
    spent = ""
    if price.budget is not None and price.used_after is not None:
        spent = (
            f"<dt>Then used</dt><dd>{percentage(price.used_after)} of the population's budget, "
            f"DP ε ≤ {price.budget:g} and so Bayesian DP ε, which holds however probes are chosen "
            f"(ε = {_up(price.together)} so far, if none was chosen by another's answer)</dd>"
        )
    refused = f"<dt>Refused</dt><dd>{text(price.refusal)}</dd>" if price.refusal else ""
    return (
        '<p class="over">Confirm it</p><h2>Ask all users one number</h2>'
        "<p>Each device computes whether the fault is there; only a noised sum over "
        f"{price.users} users is released.</p>"
        f'<dl class="facts"><dt>Probe</dt><dd><code>{text(offer.probe)}</code></dd>'
        f"<dt>Costs</dt><dd>DP ε = {_up(price.epsilon)} at δ = {price.delta:g}; Bayesian DP "
        f"ε ≤ {_up(price.bayesian_epsilon)} at δ = {price.bayesian_delta:g}</dd>{spent}"
        f"<dt>Tells</dt><dd>the share of users to ±{100 * price.half_width:.1f} points</dd>"
        f"{refused}<dt>Command</dt><dd><code>{text(offer.command(path))}</code></dd></dl>"
    )


def _up(epsilon: float) -> str:
    return "infinite" if math.isinf(epsilon) else f"{math.ceil(100 * epsilon) / 100:g}"


OTHERWISE = (
    "Users whose data really are of this kind. Compare with an earlier run of the same federation: "
    "what is common to both cancels."
)


def describe_certainty(finding: DiagnosedFault) -> str:
    """How sure a finding is."""
    q = finding.q_value
    word = "Very sure" if q < 1e-6 else "Sure" if q < 1e-3 else "Likely" if q < 0.05 else "Unsure"
    chance = "fewer than one in a million" if q < 1e-6 else f"at most {percent(max(q, 1e-3))}"
    return (
        f"{word}: of faults named on such evidence, {chance} would be false (q = {q:.2g}, over "
        "the whole library)."
    )


def describe_classes(finding: DiagnosedFault, classes: int, names: Sequence[str] = ()) -> str:
    """In which classes a finding shows; ``classes`` is 0 of data without labels."""
    if classes < 2:
        return "All records alike"
    if not finding.classes or len(finding.classes) >= classes:
        return "All classes alike"
    return f"Only in {call_classes(finding.classes, names)}"


def describe_lookalikes(finding: DiagnosedFault) -> str:
    """What else would look the same in the sums."""
    return finding.otherwise or OTHERWISE


def describe_alternatives(finding: DiagnosedFault) -> str:
    """Which other faults of the library would explain the same sums, and how well."""
    if not finding.alternatives:
        return "None of the library: each is less than a thousandth as likely."
    named = "; ".join(
        f"{one.says}, {percent(one.likelihood)} as likely" for one in finding.alternatives
    )
    certainty = "above 99%" if finding.certainty > 0.99 else percent(finding.certainty)
    return (
        f"{named[:1].upper()}{named[1:]}. That it is this one: {certainty}, if it is one of the "
        "library alone."
    )


def describe_remainder(answer: DiagnosisAnswer) -> str:
    """What the omnibus test says."""
    p = f"p = {answer.omnibus:.2g}; {UNEXPLAINED:g} or less is a sign"
    if answer.unexplained:
        return f"What was seen cannot be put down to faults of the library alone ({p})."
    after = "beyond the findings" if answer.findings else "at all"
    return f"No sign of anything else {after} ({p})."


def describe_next_steps(answer: DiagnosisAnswer) -> str:
    """What to do with the answer."""
    if not answer.fits:
        return (
            "Choose a reference of the same kind: the test images of the same data set, or an "
            "earlier run of the same federation."
        )
    if answer.unexplained:
        return (
            "Do not look only for the fault that it resembles. Look at where images differ and at "
            "the faithful samples, and compare with an earlier run. If you have an idea, write it "
            "down as a fault and try it: fedlens diagnose RUN --fault-from my_fault.py, or --fault "
            "rotate90+dim for two that come together."
        )
    if answer.findings:
        return (
            "Look at the faithful samples for it, find the step of the application that could do "
            "this, fix it, and train again: the next diagnosis tells whether the share fell."
        )
    return "The list below says from which share of users on each fault would have been seen."


def list_unseen(answer: DiagnosisAnswer) -> Sequence[tuple[str, float]]:
    """Faults that were not found with their smallest detectable share, the easiest first."""
    named = {one.fault for one in answer.findings}
    rows = [(name, share) for name, share in answer.smallest.items() if name not in named]
    return sorted(rows, key=lambda row: row[1])


TICKS = (0, 25, 50, 75, 100)


def verdict_card(answer: DiagnosisAnswer) -> tuple[str, str]:
    """The card of an answer without findings, and its kind."""
    if not answer.fits:
        return _refused(answer), "refused"
    return (_noisy(), "") if answer.too_noisy else (_clear(answer), "clear")


def remaining_cards(answer: DiagnosisAnswer) -> list[str]:
    """The cards below: what is left, and what could not have been seen."""
    return [_rest(answer), _unseen(answer)] if answer.fits else []


def _refused(answer: DiagnosisAnswer) -> str:
    return (
        '<p class="over">Nothing is claimed</p><h2>The reference is of another kind</h2>'
        f"<p>{text(answer.why)}</p><p>Records of another source fake faults, so none is named "
        f"against <b>{text(answer.reference)}</b>. {text(describe_next_steps(answer))}</p>"
        f"{'' if answer.deviation is None else deviation_figures(answer)}"
    )


def _noisy() -> str:
    return (
        '<p class="over">No verdict</p><h2>Too noisy to judge</h2><p>At this run\'s noise most '
        "faults would stay unseen even in half of the users. That nothing was found is "
        "<b>no</b> evidence that nothing is there: more users, or a larger warm-up budget, would "
        "be.</p>"
    )


def _clear(answer: DiagnosisAnswer) -> str:
    seen = sorted(share for share in answer.smallest.values() if math.isfinite(share))
    middle = percent(seen[len(seen) // 2]) if seen else "–"
    return (
        '<p class="over">Verdict</p><h2>No fault found</h2><p>None of '
        f"{answer.hypotheses} hypotheses fits better than chance. Half of the library would have "
        f"been seen from {text(middle)} of the users on; smaller shares may hide below.</p>"
    )


def finding_card(finding: DiagnosedFault, answer: DiagnosisAnswer, classes: int) -> str:
    """The card of one finding, with samples before and after the fault."""
    if not finding.named:
        return _unnamed_card(finding, answer, classes)
    smallest = answer.smallest.get(finding.fault, math.inf)
    return (
        '<div class="finding"><div><p class="over">Found in the released sums</p>'
        f"<h2>{text(_first_upper(finding.says))}</h2>"
        f'<p class="big num">{percent(finding.share)} <span class="quiet">of users '
        f"(95%: {interval_of(finding)})</span></p>"
        f"{_bar(finding, smallest)}"
        f"{_facts(finding, answer, classes)}</div>"
        f'<div><p class="over">What it looks like</p>{_looks(finding, answer)}</div></div>'
    )


def interval_of(finding: DiagnosedFault) -> str:
    """The share's interval in words."""
    if finding.low is None or finding.high is None:
        return "unknown"
    return f"{percent(finding.low)} to {percent(finding.high)}"


def _unnamed_card(finding: DiagnosedFault, answer: DiagnosisAnswer, classes: int) -> str:
    """Something changed, and no fault of the library explains it."""
    where = "" if answer.deviation is None else _first_upper(answer.deviation.where)
    facts = (
        ("Looks most like", finding.like),
        ("How images differ", where or "not known"),
        ("Where", describe_classes(finding, classes, answer.class_names)),
        ("How sure", describe_certainty(finding)),
    )
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in facts)
    return (
        '<div class="finding"><div><p class="over">Found in the released sums, without a name</p>'
        f"<h2>{text(_first_upper(finding.says))}</h2>"
        f'<p class="big num">about {percent(finding.share)} <span class="quiet">of users, if it '
        "changes as much as what it looks like; no interval can be given</span></p>"
        f'<dl class="facts">{rows}</dl></div>'
        f'<div><p class="over">What it may look like</p>{deviation_figures(answer)}</div>'
        "</div>"
    )


def deviation_figures(answer: DiagnosisAnswer) -> str:
    """Mean images of the reference and of users, and what differs."""
    deviation = answer.deviation
    if deviation is None or not deviation.shown:
        return '<p class="quiet">No picture can be given.</p>'
    pairs = "".join(_change(one, answer.class_names) for one in deviation.shown)
    return (
        f'<div class="pairs">{pairs}</div><p class="quiet">Mean images by class: of the reference, '
        "of users as far as their noised sums tell, and the difference (red: brighter, blue: "
        "darker). A guess at the kind of change. No user's record is shown.</p>"
    )


def _change(one: ShownClass, names: Sequence[str]) -> str:
    name = call_class(one.label, names)
    return (
        f'<figure><div class="row">{picture(one.before, f"mean of the reference, {name}")}'
        f"<span>→</span>{picture(one.after, f'mean of users as sums say, {name}')}"
        f"{picture(one.change, f'difference, {name}')}</div><figcaption>{text(name)}</figcaption>"
        "</figure>"
    )


def _facts(finding: DiagnosedFault, answer: DiagnosisAnswer, classes: int) -> str:
    smallest = answer.smallest.get(finding.fault, math.inf)
    facts = (
        ("Where", describe_classes(finding, classes, answer.class_names)),
        ("How sure", describe_certainty(finding)),
        ("Harmless explanations", describe_lookalikes(finding)),
        ("Other faults that fit", describe_alternatives(finding)),
        ("Detectable", f"above {percent(min(1.0, smallest))} of users, at this run's noise"),
        ("Name", finding.fault),
    )
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in facts)
    return f'<dl class="facts">{rows}</dl>'


def _bar(finding: DiagnosedFault, smallest: float) -> str:
    """From 0 to all users: hatched what could not be seen, wide the interval, thin the figure."""
    low, high = 100 * (finding.low or 0.0), 100 * (1.0 if finding.high is None else finding.high)
    said = f"{percent(finding.share)} of users, 95% interval {interval_of(finding)}"
    ticks = "".join(
        f'<em class="tick{" last" if at == 100 else ""}" style="left:{at}%">{at}%</em>'
        for at in TICKS
    )
    return (
        f'<div class="share" role="img" aria-label="{text(said)}"><i class="rail"></i>'
        f'<i class="dim" style="width:{100 * min(1.0, smallest):.1f}%"></i>'
        f'<i class="span" style="left:{low:.1f}%;width:{max(0.6, high - low):.1f}%"></i>'
        f'<i class="dot" style="left:{100 * finding.share:.1f}%"></i>{ticks}</div>'
    )


def _looks(finding: DiagnosedFault, answer: DiagnosisAnswer) -> str:
    shown = answer.looks.get(finding.fault, [])
    if not shown:
        return '<p class="quiet">It changes which records there are, not how one looks.</p>'
    pairs = "".join(_pair(one, answer.class_names) for one in shown)
    return (
        f'<div class="pairs">{pairs}</div><p class="quiet">Synthetic samples as they are, and with '
        "the fault carried out on them. No user's record is shown.</p>"
    )


def _pair(one: dict[str, str], names: Sequence[str]) -> str:
    before, after = (_called(one.get(key, ""), names) for key in ("label", "named"))
    caption = before if before == after else f"{before}, called {after}"
    caption = caption or UNLABELLED
    alike = f"the same with the fault: {after}".removesuffix(": ")
    return (
        f'<figure><div class="row">{picture(one.get("before", ""), f"sample: {caption}")}'
        f"<span>→</span>{picture(one.get('after', ''), alike)}</div>"
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def _called(number: str, names: Sequence[str]) -> str:
    return call_class(int(number), names) if number.isdecimal() else ""


def _rest(answer: DiagnosisAnswer) -> str:
    tags = tag(f"reference: {answer.reference}, {answer.images:,} images")
    tags += tag(f"{answer.hypotheses} hypotheses") + tag(f"sums of {', '.join(answer.releases)}")
    return (
        f'<p class="over">Unexplained</p><h3>{text(describe_remainder(answer))}</h3>'
        f'<p>{text(describe_next_steps(answer))}</p><p style="margin-top:.7rem">{tags}'
        f"{tag('costs no privacy', 'good')}</p>"
    )


def _unseen(answer: DiagnosisAnswer) -> str:
    rows = "".join(
        f"<div><span>{text(name.replace('_', ' '))}</span>"
        f'<b><i style="width:{100 * min(1.0, share):.0f}%"></i></b>'
        f"<span>{text(_least(share))}</span></div>"
        for name, share in list_unseen(answer)
    )
    return (
        '<p class="over">Could not have been seen</p><h3>In fewer users than this, each fault '
        f'would stay hidden</h3><div class="unseen">{rows}</div>'
        '<p class="quiet">Share of users at which nine of ten runs with this noise find it.</p>'
    )


def _least(share: float) -> str:
    return percent(share) if share <= 1 else "never"


def _first_upper(words_: str) -> str:
    return words_[:1].upper() + words_[1:]
