"""A finding in HTML: its cards, and one file to share with pictures in it and no script."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fedlens.dashboard.faults import cards
from fedlens.dashboard.faults.answer import DiagnosisAnswer
from fedlens.dashboard.faults.evidence import EvidenceSample, diagnoses_in, samples_in
from fedlens.dashboard.summary.privacy import (
    ASSUMPTIONS,
    NOT_PRIVATE,
    NOT_PRIVATE_MEANING,
    SO_FAR,
    bounds,
    delta_text,
    epsilon_text,
)
from fedlens.dashboard.widgets.markup import card, picture, tag, text
from fedlens.foundation.unlabelled import requested_words
from fedlens.store import FindingEntry, FindingStatus, RunRecord, Store, StoredFinding

STATUS: Mapping[FindingStatus, tuple[str, str]] = {
    "open": ("Open", "on"),
    "confirmed": ("Confirmed", "found"),
    "refuted": ("Refuted", ""),
    "mended": ("Mended", "good"),
}
"""For each status its word and colour."""


ON_TOP = (
    "What other runs and probes have spent of the same users comes on top: the dashboard's page "
    "Privacy has the total."
)


def moment(at: datetime) -> str:
    """A time, to the minute."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def heading_card(finding: StoredFinding, run: RunRecord) -> str:
    """What is claimed, of which run, by whom."""
    words, kind = STATUS[finding.status]
    return (
        f'<p class="over">Finding {finding.finding_id}</p>'
        f'<h2 class="claim">{text(finding.hypothesis)}</h2>'
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
        ordered = sorted(answer.findings, key=lambda one: one.fault != (fault or ""))
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
        f"<dt>Together then</dt><dd>DP ε = {text(_epsilon(content['together']))} of all that was "
        "known to be spent of these users</dd></dl>"
    )


def _epsilon(value: float | None) -> str:
    return epsilon_text(math.inf if value is None else value)


def samples_card(shown: Sequence[EvidenceSample], run: RunRecord) -> str:
    """Samples side by side, each with its class and the first of its digest."""
    figures = "".join(_sample(one, run.class_names) for one in shown)
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


def _sample(one: EvidenceSample, names: Sequence[str]) -> str:
    kind = "" if one.sample is None else f", {one.sample.purpose}"
    name = f"no. {one.sample_id}, {requested_words(one.requested_class, names)}{kind}"
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


_STYLE = (Path(__file__).parents[1] / "widgets" / "theme.css").read_text(encoding="utf-8")
_PAGE = """
body { margin: 2rem auto; max-width: 64rem; padding: 0 1.5rem; background: var(--well);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
.card { height: auto; margin: 0 0 1rem; break-inside: avoid; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_NO_DIAGNOSIS = (
    '<p class="over">Could not have been seen</p><h3>No diagnosis is kept with this finding</h3>'
    "<p>So nothing is said of faults that this run's noise would have hidden: absence of evidence "
    "in its samples is no evidence of absence.</p>"
)


def build_report(store: Store, finding_id: int) -> str:
    """The finding's report, a whole HTML file.

    It holds the hypothesis and what became of it, the run with both privacy statements and their
    assumptions, every diagnosis that was kept, the first one first, with what could not have been
    seen, probes' answers with their costs, the samples kept, and the whole history. Every text in
    it is escaped.

    Raises:
        StoreError: there is no such finding.
    """
    finding = store.finding(finding_id)
    title = f"fedlens: finding {finding.finding_id}"
    body = "".join(_report_cards(store, finding_id))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}{_PAGE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _report_cards(store: Store, finding_id: int) -> Iterator[str]:
    finding = store.finding(finding_id)
    run, entries = store.run(finding.run_id), store.finding_history(finding_id)
    yield card(heading_card(finding, run), "found" if finding.status == "confirmed" else "")
    yield card(_run_card(store, run))
    yield card(_privacy_card(store, run), "" if run.private else "refused")
    yield from _diagnosis(store, finding.fault, run, entries)
    for entry in entries:
        if entry.kind == "probe":
            yield card(probe_card(entry.content))
    shown = samples_in(entries, store)
    if shown:
        yield card(samples_card(shown, run))
    yield card(history_card(entries))


def _diagnosis(
    store: Store, fault: str | None, run: RunRecord, entries: list[FindingEntry]
) -> Iterator[str]:
    kept = diagnoses_in(entries)
    if not kept:
        yield card(_NO_DIAGNOSIS)
        return
    classes = len(store.requested_classes(run.run_id))
    for number, (entry, answer) in enumerate(kept):
        yield f'<p class="quiet">{text(describe_origin(entry, first=number == 0))}</p>'
        for inner, kind in diagnosis_cards(answer, fault, classes):
            yield card(inner, kind)


def _run_card(store: Store, run: RunRecord) -> str:
    facts = (
        ("Run", f"{run.name} ({run.run_id})"),
        ("Samples", _what_samples_are(store, run)),
        ("Data", run.data_name),
        ("Users", f"{run.users:,} on {run.nodes} nodes"),
        ("Began", f"{run.created_at:%Y-%m-%d}"),
        ("Configuration", f"SHA-256 {run.config_sha256}"),
    )
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in facts)
    return f'<p class="over">The run</p><dl class="facts">{rows}</dl>'


def _what_samples_are(store: Store, run: RunRecord) -> str:
    """How many they are and what is printed on them: that a fault was planted, above all."""
    batches = store.batches(run.run_id)
    kinds = sorted({one.provenance for one in batches})
    return f"{sum(one.count for one in batches):,}: {'; '.join(kinds)}" if batches else "none"


def _privacy_card(store: Store, run: RunRecord) -> str:
    """Both accountants' figures, and in words what they promise and assume."""
    rounds = store.rounds(run.run_id)
    figures = "<p>Nothing was released yet.</p>"
    if rounds:
        rows = "".join(
            f"<dt>{text(one.name)}</dt><dd>{text(epsilon_text(one.epsilon))} at δ = "
            f"{text(delta_text(one.delta))}</dd>"
            for one in bounds(rounds[-1])
        )
        so_far = f"<p>{text(SO_FAR)}</p>" if run.status == "running" else ""
        figures = f'<dl class="facts">{rows}</dl>{so_far}'
    warning = "" if run.private else f"<p><b>{NOT_PRIVATE}.</b> {text(NOT_PRIVATE_MEANING)}</p>"
    return (
        '<p class="over">Privacy</p><h3>What the run has cost, for anyone and for people like '
        f"those enrolled</h3>{warning}{figures}<p>{text(run.guarantee)}</p><p>{text(ON_TOP)}</p>"
        f"<p>{_bold(ASSUMPTIONS)}</p>"
    )


def _bold(markdown: str) -> str:
    """Our own words, whose stars mark what is bold or slanted."""
    pieces_ = text(markdown).split("**")
    return "".join(
        f"<b>{one}</b>" if place % 2 else one.replace("*", "") for place, one in enumerate(pieces_)
    )
