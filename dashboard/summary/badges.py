"""Badges and tables that several pages share: status, privacy, provenance."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from fedlens.dashboard.access.session import store
from fedlens.dashboard.summary import audits
from fedlens.dashboard.summary.privacy import NOT_PRIVATE, NOT_PRIVATE_MEANING, figures
from fedlens.store import RunRecord, RunStatus, StoredBatch, StoredSample

Colour = Literal["red", "orange", "blue", "green", "gray"]

STATUS: dict[RunStatus, tuple[str, Colour, str]] = {
    "running": ("Running", "blue", ":material/autorenew:"),
    "finished": ("Finished", "green", ":material/check_circle:"),
    "stopped-by-budget": ("Finished: budget used", "green", ":material/savings:"),
    "interrupted": ("Interrupted", "orange", ":material/pause_circle:"),
    "failed": ("Failed", "red", ":material/error:"),
}
"""For each status its words, colour and icon. Stopping at the budget is a normal end."""


NOISE_MEANING = (
    "By its own releases this run learned next to nothing: its samples show noise, not the data. "
    "Do not label them or look for faults in them. More users, fewer classes or a larger ε help."
)


def run_badges(run: RunRecord) -> None:
    """Status, privacy unit, and in red whether the run protects no one or an audit caught it."""
    words, colour, icon = STATUS[run.status]
    with st.container(horizontal=True, gap="small"):
        st.badge(words, color=colour, icon=icon)
        if audits.has_alarm(run.run_id):
            st.badge(audits.ALARM, color="red", icon=":material/gpp_bad:")
        elif run.private:
            st.badge(f"Private per {run.unit}", color="green", icon=":material/shield:")
        else:
            st.badge(NOT_PRIVATE, color="red", icon=":material/warning:")


def privacy_warning(run: RunRecord) -> None:
    """Red boxes on every page of a run that protects no one, was caught by an audit or is noise."""
    audits.alarm_banner(run.run_id)
    if store().worth(run.run_id) == "noise":
        st.error(f"**Noise.** {NOISE_MEANING}", icon=":material/blur_on:")
    if not run.private:
        st.error(f"**{NOT_PRIVATE}.** {NOT_PRIVATE_MEANING}", icon=":material/warning:")


def provenance(run: RunRecord, batch: StoredBatch, sample: StoredSample) -> str:
    """Where a sample comes from and what it cost, in one line."""
    parts = [
        batch.provenance,
        f"run {run.name}",
        f"round {batch.round}",
        f"checkpoint {batch.checkpoint_sha256[:12]}",
        f"seed {batch.seed}",
        f"no. {sample.position}",
        figures(batch),
    ]
    return " · ".join(parts)
