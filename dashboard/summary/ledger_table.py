"""The ledger as a table: every release that was paid for, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from fedlens.dashboard.widgets.display import Frame, frame, put_table, table_height
from fedlens.store import Coverage, LedgerRow, ReleaseRow

KINDS = {
    "frozen critic": "Warm-up: critic on fixed features",
    "focused critic": "Critic, focused",
    "annotator": "Annotator",
    "privatizer": "Privatizer",
    "frequencies of images": "Privatizer: where frequencies lie",
    "moments of images": "Privatizer: moments of images",
    "data card": "Data card",
    "critic": "Critic",
}
"""By a word of what a mechanism released: the task's words, the most special first."""
STATUS_WORDS = {"applied": "released", "lost": "lost: paid for, never used", None: "not yet known"}


UNKNOWN = Coverage(())


def build_ledger_table(
    ledger: Sequence[LedgerRow], releases: Sequence[ReleaseRow], covered: Coverage = UNKNOWN
) -> Frame:
    """One row an entry, by index; ``covered`` says which nodes the rounds had."""
    status = {release.ledger_index: release.status for release in releases}
    there = {row.round: f"{row.share:.0%} ({row.words})" for row in covered.rows}
    rows = [_row(entry, status.get(entry.index)) for entry in ledger]
    if there:
        rows = [{**row, "Speaks for": there.get(row["Round"], "–")} for row in rows]
    return frame(rows)


def _row(entry: LedgerRow, status: str | None) -> dict[str, Any]:
    event = entry.event
    return {
        "Entry": entry.index,
        "Round": entry.round,
        "What it was": describe_entry(entry),
        "Release": STATUS_WORDS.get(status, str(status)),
        "Unit": event.get("unit", "–"),
        "Sampling q": _number(event, "sampling_rate"),
        "Noise z": _number(event, "noise_multiplier"),
        "Clip C": _number(event, "clipping_norm"),
        "Count": _number(event, "count"),
        "Hash": entry.entry_hash[:12],
        "Written": f"{entry.created_at:%Y-%m-%d}",
    }


def describe_entry(entry: LedgerRow) -> str:
    """What a ledger entry paid for, in people's words, as far as the mechanism says."""
    released = str(entry.event.get("released", ""))
    named = re.sub(r" \(noise [^)]*\)", "", released).strip()
    for word, said in KINDS.items():
        if word in named:
            return said + (" and norms" if "norms" in named and word != "norms" else "")
    return named or entry.purpose


def _number(event: Mapping[str, Any], name: str) -> float | None:
    value = event.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def render_ledger(
    ledger: Sequence[LedgerRow], releases: Sequence[ReleaseRow], covered: Coverage = UNKNOWN
) -> None:
    """Put the table on the page with what it means."""
    st.markdown("#### Ledger")
    if not ledger:
        st.caption("Empty: nothing derived from users' data has been released yet.")
        return
    st.caption(
        "Each line was on disk before its release was used. z: noise standard deviation over the "
        "clipping norm C, on the sum of clipped contributions; q: chance with which each takes "
        f"part. Last entry's hash: `{ledger[-1].entry_hash}`"
    )
    said = "Table of ledger entries with mechanism and release status"
    put_table(build_ledger_table(ledger, releases, covered), said, height=table_height(len(ledger)))
