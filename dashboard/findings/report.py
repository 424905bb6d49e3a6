"""A finding as one HTML file to share: pictures in it, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedlens.dashboard.findings import pieces
from fedlens.dashboard.findings.evidence import diagnoses_in, samples_in
from fedlens.dashboard.summary.privacy import (
    ASSUMPTIONS,
    NOT_PRIVATE,
    NOT_PRIVATE_MEANING,
    SO_FAR,
    bounds,
    delta_text,
    epsilon_text,
)
from fedlens.dashboard.widgets.markup import card, text
from fedlens.store import FindingEntry, RunRecord, Store

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
    body = "".join(_cards(store, finding_id))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}{_PAGE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _cards(store: Store, finding_id: int) -> Iterator[str]:
    finding = store.finding(finding_id)
    run, history = store.run(finding.run_id), store.finding_history(finding_id)
    yield card(pieces.heading_card(finding, run), "found" if finding.status == "confirmed" else "")
    yield card(_run(run))
    yield card(_privacy(store, run), "" if run.private else "refused")
    yield from _diagnosis(store, finding.fault, run, history)
    for entry in history:
        if entry.kind == "probe":
            yield card(pieces.probe_card(entry.content))
    shown = samples_in(history, store)
    if shown:
        yield card(pieces.samples_card(shown))
    yield card(pieces.history_card(history))


def _diagnosis(
    store: Store, fault: str | None, run: RunRecord, history: list[FindingEntry]
) -> Iterator[str]:
    kept = diagnoses_in(history)
    if not kept:
        yield card(_NO_DIAGNOSIS)
        return
    classes = len(store.requested_classes(run.run_id))
    for number, (entry, answer) in enumerate(kept):
        yield f'<p class="quiet">{text(pieces.describe_origin(entry, first=number == 0))}</p>'
        for inner, kind in pieces.diagnosis_cards(answer, fault, classes):
            yield card(inner, kind)


def _run(run: RunRecord) -> str:
    facts = (
        ("Run", f"{run.name} ({run.run_id})"),
        ("Data", run.data_name),
        ("Users", f"{run.users:,} on {run.nodes} nodes"),
        ("Began", f"{run.created_at:%Y-%m-%d}"),
        ("Configuration", f"SHA-256 {run.config_sha256}"),
    )
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in facts)
    return f'<p class="over">The run</p><dl class="facts">{rows}</dl>'


def _privacy(store: Store, run: RunRecord) -> str:
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
        f"those enrolled</h3>{warning}{figures}<p>{text(run.guarantee)}</p>"
        f"<p>{_bold(ASSUMPTIONS)}</p>"
    )


def _bold(markdown: str) -> str:
    """Our own words, whose stars mark what is bold or slanted."""
    pieces_ = text(markdown).split("**")
    return "".join(
        f"<b>{one}</b>" if place % 2 else one.replace("*", "") for place, one in enumerate(pieces_)
    )
