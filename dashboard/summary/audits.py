"""What audits of a run found, and the red that an alarm turns a run's pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import streamlit as st

from fedlens.dashboard.access.session import store
from fedlens.dashboard.summary.privacy import delta_text, epsilon_text
from fedlens.dashboard.widgets.display import Frame, colour_column, frame, put_table, table_height
from fedlens.dashboard.widgets.markup import plain
from fedlens.foundation.rounding import rounded_down
from fedlens.store import AuditKind, AuditRecord, AuditVerdict

ALARM = "AUDIT ALARM"
ALARM_MEANING = (
    "An audit contradicts what is claimed of this run. Do not trust its privacy figures, and "
    "release nothing more from it, until the cause is found."
)
VERDICTS: dict[AuditVerdict, str] = {
    "alarm": ALARM,
    "nothing-found": "nothing found",
    "cannot-detect": "cannot detect",
}
KINDS: dict[AuditKind, str] = {
    "clipping": "Clipping: updates far above the clip, hostile nodes",
    "sampling": "Sampling: who is in a sum, and how often",
    "one-run": "One run: lower bound from canaries",
    "one-shot": "One shot: estimate from canaries",
    "noise": "Noise: every coordinate, freshness",
}
CAPTION = (
    "An audit carries the run's mechanism out with made-up users and tries to show a larger ε than "
    "is claimed. **Nothing found** is no proof: it says that this attack failed. **Cannot detect** "
    "says that it could not have succeeded at this ε, whatever the code does. *ε at least* is a "
    "bound; *estimate* is none."
)
NONE_YET = "–"
FRAME = "<style>[data-testid='stMain'] { box-shadow: inset 0 0 0 8px #c62828; }</style>"
"""A red frame around the page."""
RED = "background-color: #fbe3e3; color: #a61b1b; font-weight: bold"


def alarms(audits: Sequence[AuditRecord]) -> list[AuditRecord]:
    """Those that raised an alarm. A later audit without one does not take it back."""
    return [audit for audit in audits if audit.verdict == "alarm"]


def has_alarm(run_id: str) -> bool:
    """Whether some audit of the run raised an alarm."""
    return bool(alarms(store().audits(run_id)))


def alarm_banner(run_id: str) -> None:
    """A red box at the head of every page of a run that an audit raised an alarm about."""
    found = alarms(store().audits(run_id))
    if not found:
        return
    latest = found[-1]
    st.html(FRAME)
    st.error(
        f"**{ALARM}.** {ALARM_MEANING}\n\n{KINDS[latest.kind]}, "
        f"{latest.at:%Y-%m-%d}: {plain(latest.words)}",
        icon=":material/gpp_bad:",
    )


def build_audit_table(audits: Sequence[AuditRecord]) -> Frame:
    """One row an audit, the newest first."""
    return frame([_row(audit) for audit in reversed(audits)])


def _row(audit: AuditRecord) -> dict[str, Any]:
    return {
        "Audit": KINDS[audit.kind],
        "Audited": subject(audit).rstrip("."),
        "Verdict": VERDICTS[audit.verdict],
        "Claimed ε (δ)": f"{epsilon_text(audit.claimed_epsilon)} ({delta_text(audit.delta)})",
        "ε at least": NONE_YET if audit.lower_bound is None else _least(audit.lower_bound),
        "Estimate": _figure(audit.estimate),
        "Could show at most": _figure(audit.cap),
        "When": f"{audit.at:%Y-%m-%d}",
    }


def _figure(value: float | None) -> str:
    return NONE_YET if value is None else epsilon_text(value)


def _least(value: float) -> str:
    """A lower bound, rounded down: no more leaks for sure than was shown."""
    return epsilon_text(value) if math.isinf(value) else f"{rounded_down(value, 3):.3g}"


def _colour(value: object) -> str:
    return RED if value == ALARM else ""


def newest(audits: Sequence[AuditRecord]) -> list[AuditRecord]:
    """The last audit of each kind for each task, in the order of `KINDS`."""
    last = {(audit.kind, subject(audit)): audit for audit in audits}
    return [audit for kind in KINDS for (of, _), audit in last.items() if of == kind]


def subject(audit: AuditRecord) -> str:
    """What was audited, as the words say at their end."""
    return audit.words.rpartition("Audited: ")[2] if "Audited: " in audit.words else ""


def render_audits(audits: Sequence[AuditRecord], run_name: str) -> None:
    """Put the audits on the page: a table, then the newest of each kind in words."""
    st.markdown("#### Audits")
    if not audits:
        st.caption(f"No audit yet: run `fedlens audit` on the run's folder ({plain(run_name)}).")
        return
    st.caption(CAPTION)
    verdicts = colour_column(build_audit_table(audits), "Verdict", _colour)
    put_table(
        verdicts,
        "Table of audits with their verdicts and figures",
        height=table_height(len(audits)),
    )
    for audit in newest(audits):
        st.markdown(f"- **{KINDS[audit.kind]}:** {plain(audit.words)}")
