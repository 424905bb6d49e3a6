"""A finding in pieces of HTML, for the page and for the report."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fedlens.dashboard.faults import cards
from fedlens.dashboard.faults.answer import DiagnosisAnswer
from fedlens.dashboard.findings.evidence import EvidenceSample
from fedlens.dashboard.summary.privacy import delta_text, epsilon_text
from fedlens.dashboard.widgets.markup import picture, tag, text
from fedlens.store import FindingEntry, FindingStatus, RunRecord, StoredFinding

STATUS: Mapping[FindingStatus, tuple[str, str]] = {
    "open": ("Open", "on"),
    "confirmed": ("Confirmed", "found"),
    "refuted": ("Refuted", ""),
    "mended": ("Mended", "good"),
}
"""For each status its word and colour."""


def moment(at: datetime) -> str:
    """A time, to the minute."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def heading_card(finding: StoredFinding, run: RunRecord) -> str:
    """What is claimed, of which run, by whom."""
    words, kind = STATUS[finding.status]
    return (
        f'<p class="over">Finding {finding.finding_id}</p><h2>{text(finding.hypothesis)}</h2>'
        f"<p>{tag(words, kind)}{tag(f'run {run.name}')}{_fault(finding)}</p>"
        f'<p class="quiet">By {text(finding.author)}, {moment(finding.created_at)}; last changed '
        f"{moment(finding.changed_at)}</p>"
    )


def _fault(finding: StoredFinding) -> str:
    return tag(f"fault {finding.fault}") if finding.fault else ""


def diagnosis_cards(
    answer: DiagnosisAnswer, fault: str | None, classes: int
) -> list[tuple[str, str]]:
    """A diagnosis as cards with their kinds: the fault first that the finding is about."""
    if not answer.fits or not answer.findings:
        first = [cards.verdict_card(answer)]
    else:
        ordered = sorted(answer.findings, key=lambda one: one.fault != fault)
        first = [(cards.finding_card(one, answer, classes), "found") for one in ordered]
    return [*first, *((inner, "") for inner in cards.remaining_cards(answer))]


def describe_origin(entry: FindingEntry, *, first: bool) -> str:
    """When a diagnosis was kept with a finding, over its cards."""
    kept = f"{moment(entry.at)}, by {entry.author}"
    if first:
        return f"As it stood when it was kept, on {kept}. Later diagnoses do not change it."
    return f"A later diagnosis, added on {kept}."


def probe_card(content: Mapping[str, Any]) -> str:
    """A probe's answer with its interval and its cost."""
    value = f"{content['value']:.3g} (95%: {content['low']:.3g} to {content['high']:.3g})"
    cost = (
        f"DP ε = {_epsilon(content['epsilon'])} at δ = {delta_text(content['delta'])}; Bayesian DP "
        f"ε ≤ {_epsilon(content['bayesian_epsilon'])} (corrected, an estimate) at δ = "
        f"{delta_text(content['bayesian_delta'])}"
    )
    return (
        '<p class="over">Asked of all users</p>'
        f"<h3>{text(content['says'])}</h3>"
        f'<p class="big num">{text(value)}</p><dl class="facts">'
        f"<dt>Probe</dt><dd><code>{text(content['probe'])}</code></dd>"
        f"<dt>Users asked</dt><dd>{content['users']:,.0f}</dd><dt>Cost</dt><dd>{text(cost)}</dd>"
        f"<dt>Spent together</dt><dd>DP ε = {text(_epsilon(content['together']))} of all that is "
        "known to be spent of these users</dd></dl>"
    )


def _epsilon(value: float | None) -> str:
    return epsilon_text(math.inf if value is None else value)


def samples_card(shown: Sequence[EvidenceSample]) -> str:
    """Samples side by side, each with its class and the first of its digest."""
    figures = "".join(_sample(one) for one in shown)
    return (
        '<p class="over">Samples kept as evidence</p>'
        f'<h3>{len(shown):,} synthetic samples</h3><div class="pairs">{figures}</div>'
        f'<p class="quiet">Drawn from the released generator. {text(_kinds(shown))}No user\'s '
        "record is shown.</p>"
    )


def _kinds(shown: Sequence[EvidenceSample]) -> str:
    """A word of caution where some were guided and filtered."""
    if any(one.sample is not None and one.sample.purpose == "curated" for one in shown):
        return "Curated ones were guided and filtered: faults are taken out of them. "
    return ""


def _sample(one: EvidenceSample) -> str:
    kind = "" if one.sample is None else f", {one.sample.purpose}"
    name = f"no. {one.sample_id}, class {one.requested_class}{kind}"
    if one.sample is None:
        shown = '<span class="quiet">no longer in the store</span>'
    else:
        encoded = base64.b64encode(one.sample.png).decode("ascii")
        shown = picture(encoded, f"Synthetic sample {name}")
    return (
        f'<figure title="SHA-256 {text(one.sha256)}"><div class="row">{shown}</div>'
        f"<figcaption>{text(name)}<br>{text(one.sha256[:12])}…</figcaption></figure>"
    )


def history_card(entries: Sequence[FindingEntry]) -> str:
    """All that happened, the first first."""
    rows = "".join(
        f"<dt>{moment(one.at)}<br>{text(one.author)}</dt><dd>{_happened(one)}</dd>"
        for one in entries
    )
    return f'<p class="over">History</p><dl class="facts history">{rows}</dl>'


def _happened(entry: FindingEntry) -> str:
    content = entry.content
    if entry.kind == "note":
        return _lines(content["text"])
    if entry.kind == "status":
        words, kind = STATUS[content["status"]]
        return f"{tag(words, kind)} {_lines(content['text'])}"
    if entry.kind in ("opened", "reworded"):
        verb = "Opened" if entry.kind == "opened" else "Reworded"
        return f"{verb}: {text(content['hypothesis'])}"
    if entry.kind == "samples":
        return f"{len(content['samples'])} samples added"
    if entry.kind == "probe":
        return f"Answer of the probe <code>{text(content['probe'])}</code> added"
    return "Diagnosis added"


def _lines(words: str) -> str:
    return text(words).replace("\n", "<br>")
