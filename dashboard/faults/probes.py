"""Probes that are asked from a page: by people who may spend, once, at a price they have seen."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import home
from fedlens.dashboard.faults import cards
from fedlens.dashboard.faults.answer import DiagnosedFault
from fedlens.dashboard.faults.evidence import probes_of
from fedlens.dashboard.faults.jobs import MOST_SECONDS, RunPlace
from fedlens.dashboard.faults.panel import clock
from fedlens.dashboard.faults.report import probe_card
from fedlens.dashboard.jobs import Job, Jobs
from fedlens.dashboard.summary.privacy import epsilon_text
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import text
from fedlens.diagnosis.probe_offers import ProbeOffer
from fedlens.store import RunRecord

REFRESH_SECONDS = 2
_TURN = threading.Lock()


@dataclass(frozen=True)
class ProbeQuestion:
    """One number, asked of all users of a run."""

    run: RunPlace
    probe: str
    epsilon: float
    delta: float

    def command(self) -> list[str]:
        """What asks it: the ledger's entry stands before anything is released."""
        path = str(self.run.path.absolute())
        flags = f"--probe={self.probe}", f"--epsilon={self.epsilon!r}", f"--delta={self.delta!r}"
        return [sys.executable, "-m", "fedlens.cli", "probe", path, *flags, "--json"]


class Probes(Jobs[ProbeQuestion, Job]):
    """All probes asked from this server's pages."""

    def __init__(self) -> None:
        super().__init__(_TURN)

    def ask(self, question: ProbeQuestion) -> Job:
        """Have it asked, unless that is under way already."""

        def work(job: Job) -> bool:
            job.run_command(question.command(), most_seconds=MOST_SECONDS)
            return True

        return self._start(question, Job(), work)


def answers_to(finding: DiagnosedFault, place: RunPlace | None) -> list[dict[str, Any]]:
    """What users have answered to a finding's question, the first first."""
    asked = finding.probe
    return [one for one in probes_of(place) if asked and one["probe"] == asked]


@st.cache_resource(show_spinner=False)
def probes() -> Probes:
    """All probes of this server."""
    return Probes()


def render_probe(finding: DiagnosedFault, run: RunRecord, place: RunPlace, shown: str) -> None:
    """Put the offer of a finding's probe on the page, or how far it is.

    Nothing where there is no such probe, or where it was answered.

    Args:
        finding: what it would confirm.
        run: in which that was found.
        place: its folder.
        shown: the folder as the command names it.
    """
    offer = cards.offer_for(finding, run.config)
    if offer is None or answers_to(finding, place):
        return
    question = ProbeQuestion(place, offer.probe, offer.price.asked_epsilon, offer.price.delta)
    job = probes().job(question)
    if job is not None and not job.over:
        _waiting(question)
        return
    cards.render_probe_offer(finding, run, shown)
    if job is not None:
        put_card(f'<p class="over">No answer</p><p>{text(job.why)}</p>', "refused")
    elsewhere = run.config.get("split.side", "none") != "none"  # its users are another's to ask
    if account().may("manage") and not offer.price.refusal and not elsewhere:
        _button(question, offer, run)


def _button(question: ProbeQuestion, offer: ProbeOffer, run: RunRecord) -> None:
    """Two clicks: what is spent cannot be taken back."""
    with st.popover("Ask it from here", icon=":material/contact_support:"):
        price = offer.price
        st.markdown(
            f"This spends **DP ε = {epsilon_text(price.epsilon)}** of {price.users} users' budget "
            f"(Bayesian DP ε ≤ {epsilon_text(price.bayesian_epsilon)}). It cannot be taken back."
        )
        if st.button("Spend it and ask", key=f"probe-{question.probe}", type="primary"):
            author = require("manage").name
            home().log(author, "probe asked", f"{question.probe} of run {run.name}")
            probes().ask(question)
            st.rerun()


@st.fragment(run_every=REFRESH_SECONDS)
def _waiting(question: ProbeQuestion) -> None:
    require("look")
    job = probes().job(question)
    if job is None or job.over:
        st.rerun()
        return
    put_card(
        f'<div role="status"><p class="over">Being asked, {clock(job.seconds)}</p>'
        "<h2>Users' devices compute their answers</h2></div>"
        '<p class="quiet">You may leave this page: the answer will stand here.</p>'
    )


def render_answers(finding: DiagnosedFault, place: RunPlace | None) -> None:
    """Put what users answered beside the claim."""
    for one in answers_to(finding, place):
        put_card(probe_card(one), "clear")
