"""A diagnosis as cards: what was found first, what could not have been seen last."""

from __future__ import annotations

import math

from fedlens.dashboard.faults import words
from fedlens.dashboard.faults.answer import DiagnosedFault, DiagnosisAnswer, percent
from fedlens.dashboard.widgets.markup import picture, tag, text

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
        f"against <b>{text(answer.reference)}</b>. {text(words.describe_next_steps(answer))}</p>"
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
    smallest = answer.smallest.get(finding.fault, math.inf)
    return (
        '<div class="finding"><div><p class="over">Found in the released sums</p>'
        f"<h2>{text(_first_upper(finding.says))}</h2>"
        f'<p class="big num">{percent(finding.share)} <span class="quiet">of users '
        f"(95%: {percent(finding.low)} to {percent(finding.high)})</span></p>"
        f"{_bar(finding, smallest)}"
        f"{_facts(finding, classes, smallest)}</div>"
        f'<div><p class="over">What it looks like</p>{_looks(finding, answer)}</div></div>'
    )


def _facts(finding: DiagnosedFault, classes: int, smallest: float) -> str:
    facts = (
        ("Where", words.describe_classes(finding, classes)),
        ("How sure", words.describe_certainty(finding)),
        ("What else it could be", words.describe_lookalikes(finding.fault)),
        ("Other faults instead", words.describe_alternatives(finding)),
        ("Seen from", f"{percent(min(1.0, smallest))} of users on, at this run's noise"),
        ("Name", finding.fault),
    )
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in facts)
    return f'<dl class="facts">{rows}</dl>'


def _bar(finding: DiagnosedFault, smallest: float) -> str:
    """From 0 to all users: hatched what could not be seen, wide the interval, thin the figure."""
    low, high = 100 * finding.low, 100 * finding.high
    said = f"{percent(finding.share)} of users, 95% interval {percent(finding.low)} to "
    said += percent(finding.high)
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
    pairs = "".join(_pair(one) for one in shown)
    return (
        f'<div class="pairs">{pairs}</div><p class="quiet">Synthetic samples as they are, and with '
        "the fault carried out on them. No user's record is shown.</p>"
    )


def _pair(one: dict[str, str]) -> str:
    before, after = one.get("label", ""), one.get("named", "")
    same = before == after
    caption = f"class {before}" if same else f"class {before}, called {after}"
    return (
        f'<figure><div class="row">{picture(one.get("before", ""), f"sample of class {before}")}'
        f"<span>→</span>{picture(one.get('after', ''), f'the same with the fault: {after}')}</div>"
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def _rest(answer: DiagnosisAnswer) -> str:
    tags = tag(f"reference: {answer.reference}, {answer.images:,} images")
    tags += tag(f"{answer.hypotheses} hypotheses") + tag(f"sums of {', '.join(answer.releases)}")
    return (
        f'<p class="over">What is left</p><h3>{text(words.describe_remainder(answer))}</h3>'
        f'<p>{text(words.describe_next_steps(answer))}</p><p style="margin-top:.7rem">{tags}'
        f"{tag('costs no privacy', 'good')}</p>"
    )


def _unseen(answer: DiagnosisAnswer) -> str:
    rows = "".join(
        f"<div><span>{text(name.replace('_', ' '))}</span>"
        f'<b><i style="width:{100 * min(1.0, share):.0f}%"></i></b>'
        f"<span>{text(_least(share))}</span></div>"
        for name, share in words.list_unseen(answer)
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
