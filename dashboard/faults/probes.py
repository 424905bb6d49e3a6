"""Probes that are asked from a page: by people who may spend, once, at a price they have seen."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import streamlit as st

from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.officer import Approvable, WaitingProbe
from fedlens.accountant.probing import probe_event, probe_noise
from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import home, store_of
from fedlens.dashboard.faults import cards, panel
from fedlens.dashboard.faults.answer import DiagnosedFault
from fedlens.dashboard.faults.evidence import probes_of
from fedlens.dashboard.faults.jobs import MOST_SECONDS, RunPlace
from fedlens.dashboard.faults.panel import clock
from fedlens.dashboard.faults.report import probe_card
from fedlens.dashboard.jobs import CommandFailed, Job, Jobs
from fedlens.dashboard.privacy.books import open_books
from fedlens.dashboard.privacy.people import People, open_population, people_of
from fedlens.dashboard.summary.privacy import epsilon_text
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import text
from fedlens.dashboard.widgets.pages import put_link
from fedlens.diagnosis.probe_offers import ProbeOffer, question_about
from fedlens.foundation.errors import FedlensError
from fedlens.store import RunRecord, SpendingRequest, StoredRequest, StoreError
from fedlens.store.records import utc_now
from fedlens.store.spending import LONGEST_WORDS

REFRESH_SECONDS = 2
Told = Callable[[bool, str], None]
LOST = "The server ended while it was being asked; it may have been paid for, see the ledger."
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

    def ask(self, question: ProbeQuestion, told: Told | None = None) -> Job:
        """Have it asked, unless that is under way already.

        Args:
            question: what is asked.
            told: what came of it: whether it was answered, and why not.
        """

        def work(job: Job) -> bool:
            try:
                job.run_command(question.command(), most_seconds=MOST_SECONDS)
            except (CommandFailed, OSError) as error:
                tell(False, str(error))
                raise
            tell(True, "")
            return True

        def tell(answered: bool, why: str) -> None:
            if told is not None:
                told(answered, why)

        job = self._start(question, Job(), work)
        if job.over:  # too many wait
            tell(False, job.why)
        return job


def answers_to(finding: DiagnosedFault, place: RunPlace | None) -> list[dict[str, Any]]:
    """What users have answered to a finding's question, the first first."""
    asked = finding.probe
    return [one for one in probes_of(place) if asked and one["probe"] == asked]


@st.cache_resource(show_spinner=False)
def probes() -> Probes:
    """All probes of this server."""
    return Probes()


def carry_out(request_id: int) -> None:
    """Ask what an officer has approved, once; nothing where the run's folder is not here.

    Raises:
        StoreError: it is not approved, or was asked already.
    """
    own = home()
    (asked,) = (one for one in own.requests() if one.request_id == request_id)
    place = panel.place_of(asked.run_id)
    if place is None:
        return
    own.take_request(request_id)

    def told(answered: bool, why: str) -> None:
        own.close_request(request_id, answered=answered, note=why)

    try:
        _approve(asked)
    except (FedlensError, OSError) as error:
        told(False, str(error))
        raise StoreError(f"the approval cannot be kept: {error}") from None
    question = ProbeQuestion(place, asked.probe, asked.asked_epsilon, asked.delta)
    probes().ask(question, told)


def _approve(asked: StoredRequest) -> None:
    """Have the population's ledger let the probe through, where a population pays."""
    people = people_of(asked.run_id)
    if people is not None and people.population:
        event, question, users = _asked_of_ledger(asked)
        open_population(people.population).approve(
            event, question=question, users=users, by=str(asked.decided_by)
        )


def _asked_of_ledger(asked: StoredRequest) -> tuple[SubsampledGaussian, str, str]:
    """A request as the population's ledger knows it: its event, question and slice."""
    event = probe_event(probe_noise(asked.asked_epsilon, asked.delta))
    question = question_about(asked.probe, asked.run_id)
    return event, question, _slice_of(store_of(asked.run_id).run(asked.run_id))


def decline_held(asked: StoredRequest, officer: str, why: str) -> None:
    """Decline what a request on a page asks for where a command asked for the same."""
    people = people_of(asked.run_id)
    if people is None or not people.population:
        return
    population, key = open_population(people.population), Approvable.of(*_asked_of_ledger(asked))
    for one in population.waiting():
        if one.key == key:
            population.decide(one, approved=False, by=officer, why=why)


def without_requested(
    held_back: list[WaitingProbe], requests: list[StoredRequest]
) -> list[WaitingProbe]:
    """Probes that the ledger held back, but for those that somebody requested on a page too."""
    open_ = [one for one in requests if held_back and one.open]
    requested = {Approvable.of(*_asked_of_ledger(one)) for one in open_}
    return [one for one in held_back if one.key not in requested]


def _slice_of(run: RunRecord) -> str:
    """Whom of the population a run is about; empty for everyone."""
    return str(run.config.get("data.slice", ""))


def render_probe(finding: DiagnosedFault, run: RunRecord, place: RunPlace, shown: str) -> None:
    """Put the offer of a finding's probe on the page, or how far it is.

    Nothing where there is no such probe, or where it was answered; where the run's users cannot be
    asked it, why.

    Args:
        finding: what it would confirm.
        run: in which that was found.
        place: its folder.
        shown: the folder as the command names it.
    """
    offer = cards.offer_for(finding, run.config, run.run_id)
    if offer is None or answers_to(finding, place):
        return
    if finding.probe_refusal:
        put_card(cards.refused_card(finding))
        return
    question = ProbeQuestion(place, offer.probe, offer.price.asked_epsilon, offer.price.delta)
    job, asked = probes().job(question), _last_request(run, offer)
    if job is not None and not job.over:
        _waiting(question)
        return
    if asked is not None and asked.open:
        put_card(_request_card(asked))
        put_link("privacy", "The officer's page", run=run.run_id)
        return
    cards.render_probe_offer(finding, run, shown)
    if asked is not None and asked.status == "declined":
        put_card(_request_card(asked), "refused")
    elif job is not None:
        put_card(f'<p class="over">No answer</p><p>{text(job.why)}</p>', "refused")
    elsewhere = run.config.get("split.side", "none") != "none"  # its users are another's to ask
    if account().may("manage") and not offer.price.refusal and not elsewhere:
        _button(question, offer, run)


def _last_request(run: RunRecord, offer: ProbeOffer) -> StoredRequest | None:
    """The newest request for a probe; one that was taken long ago and never ended has failed."""
    found = [one for one in home().requests(run_id=run.run_id) if one.probe == offer.probe]
    if not found:
        return None
    late = found[0].changed_at + timedelta(seconds=2 * MOST_SECONDS) < utc_now()
    if found[0].status == "being asked" and late:
        home().close_request(found[0].request_id, answered=False, note=LOST)
        return _last_request(run, offer)
    return found[0]


def _request_card(one: StoredRequest) -> str:
    said = {
        "waiting": ("Waits for an officer", "An officer approves it first, or says why not."),
        "approved": ("Approved", f"{one.decided_by} approved it; it is asked next."),
        "being asked": ("Being asked", "Users' devices compute their answers."),
    }
    over, words = said.get(one.status, ("Declined", f"{one.decided_by}: {one.note}"))
    return (
        f'<div role="status"><p class="over">{text(over)}</p><h2>{text(words)}</h2></div>'
        f'<p class="quiet">{text(one.probe)}, DP ε = {epsilon_text(one.epsilon)}, asked for by '
        f"{text(one.author)}</p>"
    )


def _button(question: ProbeQuestion, offer: ProbeOffer, run: RunRecord) -> None:
    """Two clicks: what is spent cannot be taken back."""
    people = people_of(run.run_id)
    waits = people is not None and _needs_approval(people, offer, run)
    label = "Ask an officer" if waits else "Ask it from here"
    with st.popover(label, icon=":material/contact_support:"):
        price = offer.price
        st.markdown(
            f"This spends **DP ε = {epsilon_text(price.epsilon)}** of {price.users} users' budget "
            f"(Bayesian DP ε ≤ {epsilon_text(price.bayesian_epsilon)}). It cannot be taken back."
        )
        if waits and people is not None:
            _request(people, offer, run)
        elif st.button("Spend it and ask", key=f"probe-{question.probe}", type="primary"):
            author = require("manage").name
            if people is not None and _needs_approval(people, offer, run):
                st.rerun()  # the rule was set meanwhile
            home().log(author, "probe asked", f"{question.probe} of run {run.name}")
            probes().ask(question)
            st.rerun()


def _needs_approval(people: People, offer: ProbeOffer, run: RunRecord) -> bool:
    """Whether an officer's rule says that this is more than an engineer spends alone.

    The population's own rule binds commands too; another dashboard may have set it.
    """
    if offer.price.waits:
        return True
    rule = home().spending_rule(people.key)
    if rule.approve_above is None:
        return False
    event = probe_event(offer.price.noise_multiplier)
    after = open_books(people).used_after(event, _slice_of(run))
    return rule.needs_approval(offer.price.epsilon, after)


def _request(people: People, offer: ProbeOffer, run: RunRecord) -> None:
    st.markdown("It is more than may be spent without a privacy officer: one approves it first.")
    why = st.text_input("What for", max_chars=LONGEST_WORDS, key=f"why-{offer.probe}")
    if st.button("Send the request", key=f"request-{offer.probe}", type="primary"):
        price = offer.price
        record = SpendingRequest(
            people=people.key,
            run_id=run.run_id,
            probe=offer.probe,
            asked_epsilon=price.asked_epsilon,
            epsilon=price.epsilon,
            delta=price.delta,
            why=why,
        )
        home().request_spending(record, author=require("manage").name)
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
