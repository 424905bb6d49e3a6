"""Privacy: for an officer, what some people's privacy was spent on, what waits, a statement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

import streamlit as st

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.officer import OfficerRules
from fedlens.accountant.ledger.terms import PopulationError, population_folder
from fedlens.accountant.wording import percentage
from fedlens.dashboard.access.account import require, require_later
from fedlens.dashboard.access.session import (
    RUN_PARAMETER,
    all_runs,
    choose_page,
    home,
    name_page,
    pick,
    plain_errors,
)
from fedlens.dashboard.faults import panel, probes
from fedlens.dashboard.privacy import approvals
from fedlens.dashboard.privacy.answers import (
    Answer,
    Report,
    answers,
    report_of,
    standing,
)
from fedlens.dashboard.privacy.books import Books, Chain, check_mirrors, open_books, total_of
from fedlens.dashboard.privacy.people import People, all_people, by_run
from fedlens.dashboard.privacy.statement import answer_card, as_html, as_pdf, title_of
from fedlens.dashboard.summary.privacy import delta_text, epsilon_text
from fedlens.dashboard.widgets.display import frame, put_card, put_table, table_height
from fedlens.dashboard.widgets.markup import tag, text
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.store import Member

PARAMETER = "people"
AT_ONCE = 20
"""Populations and runs that the list shows."""
SHOWN_ENTRIES = 1000
REFRESH_SECONDS = 2
EXPLAINED = (
    "Everything that is known to be spent of the same people counts together: runs, probes, "
    "filters and slices of a population; or a run that names none, with its probes and the runs "
    "that build on it."
)


def _count_held_back(population: str) -> int:
    """Probes that a population's ledger keeps for its officer."""
    try:
        rules = OfficerRules.read(population_folder(population)) if population else OfficerRules()
    except PopulationError:
        return 0  # the question who may spend says so
    return 0 if rules.approve_above is None else len(rules.waiting)


def _listed(people: list[People], open_requests: dict[str, int]) -> None:
    """All populations and runs by themselves, with what each has spent in total."""
    start = choose_page(len(people), AT_ONCE) if len(people) > AT_ONCE else 0
    rows = "".join(
        _row(one, open_requests.get(one.key, 0)) for one in people[start : start + AT_ONCE]
    )
    put_card(
        '<table class="people"><thead><tr><th scope="col">Whose</th><th scope="col">Spent in total'
        '</th><th scope="col">Budget</th><th scope="col">Used</th><th scope="col">Waiting</th>'
        f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(people: People, waiting: int) -> str:
    total = total_of(people)
    budget = "none" if total.budget is None else f"ε ≤ {epsilon_text(total.budget)}"
    kind = "bad" if (total.used or 0) > 1 else ""
    used = "–" if total.used is None else tag(percentage(total.used), kind)
    return (
        f'<tr><td><a href="privacy?{PARAMETER}={quote(people.key)}" target="_self">'
        f"{text(people.title())}</a></td>"
        f"<td>DP ε {text(epsilon_text(total.epsilon))} (δ {text(delta_text(total.delta))}); "
        f"BDP ε {text(epsilon_text(total.bayesian))} (δ {text(delta_text(total.bayesian_delta))})"
        f"</td><td>{text(budget)}</td><td>{used}</td>"
        f"<td>{tag(waiting, 'found') if waiting else '–'}</td></tr>"
    )


def _headline(report: Report) -> None:
    """The binding figure against its budget, before anything else."""
    total = report.total
    words, kind = standing(report)
    of = "" if total.budget is None else f" of ε ≤ {epsilon_text(total.budget)}"
    same = epsilon_text(total.epsilon)
    put_card(
        f'<p class="over">Spent in total, {text(report.title)}</p>'
        f'<p class="big num">DP ε {text(same)} <span class="quiet">{text(of)} at δ = '
        f"{text(delta_text(total.delta))}; Bayesian DP ε ≤ {text(same)} at this δ</span></p>"
        f"{_meter(report)}<p>{tag(words, kind)}</p>",
        {"bad": "refused", "good": "clear"}.get(kind, kind),
    )


def _meter(report: Report) -> str:
    used = report.total.used
    if used is None:
        return ""
    shown, mark = min(100.0, 100 * used), 100 * report.rule.warn_at
    warns = f"warns from {report.rule.warn_at:.0%} on"
    said = f"{percentage(used)} of the budget used; {warns}"
    return (
        f'<div class="budget" role="img" aria-label="{text(said)}"><i style="width:{shown:.1f}%">'
        f'</i><b style="left:{mark:.1f}%"></b></div><p class="quiet">The mark {text(warns)}.</p>'
    )


def _twelve(report: Report) -> None:
    columns = st.columns(2, gap="medium")
    for place, answer in enumerate(answers(report)):
        with columns[place % 2]:
            _answer(place + 1, answer)


def _answer(number: int, answer: Answer) -> None:
    put_card(answer_card(number, answer), answer.kind)


def _entries(books: Books) -> None:
    """Every entry with its hash, and the file itself."""
    st.markdown("#### Every entry, with its hash")
    readable = [(one, one.ledger) for one in books.chains if one.ledger is not None]
    if not readable:
        st.caption("No ledger was found on this machine.")
        return
    names = [one.name for one, _ in readable]
    place = st.selectbox("Ledger", range(len(names)), format_func=lambda i: names[i])
    chain, ledger = readable[place]
    _table(chain, ledger)
    _compare(chain)


def _table(chain: Chain, ledger: Ledger) -> None:
    last = ledger.entries[-SHOWN_ENTRIES:]
    if not last:
        st.caption("Empty: nothing derived from users' data has been released yet.")
        return
    rows: list[dict[str, Any]] = [
        {
            "Entry": entry.index,
            "Day": entry.at[:10],
            "Run": entry.run or chain.name,
            "Round": entry.round,
            "For": entry.purpose,
            "About": entry.users or "everyone",
            "Released": entry.event.released,
            "Noise z": entry.event.noise_multiplier,
            "Hash": entry.hash,
            "Continues": entry.previous[:12],
        }
        for entry in last
    ]
    put_table(
        frame(rows), "Table of ledger entries with their hashes", height=table_height(len(last))
    )
    if len(ledger) > len(last):
        st.caption(f"The last {len(last):,} of {len(ledger):,}; the file has all of them.")
    st.download_button(
        "The ledger's file",
        partial(chain.path.read_bytes),
        file_name="ledger.jsonl",
        mime="application/x-ndjson",
        icon=":material/download:",
        on_click="ignore",
        help="What it holds may be shown to anybody; docs: the ledger's format.",
    )


def _compare(chain: Chain) -> None:
    """A head that was filed before: whether the ledger still holds it."""
    head = st.text_input(
        "Head that was filed before", help="Tells whether lines at the end were cut off since."
    ).strip()
    ledger = chain.ledger
    if not head or ledger is None:
        return
    place = [ledger.header_hash, *(entry.hash for entry in ledger.entries)]
    if head in place:
        st.success(f"Held: it is entry {place.index(head)} of {len(ledger)}.")
    else:
        st.error("This ledger does not hold that line: it was cut, or is another one.")


def _statement(report: Report) -> None:
    st.markdown("#### Statement to sign and file")
    name = f"privacy-{report.books.people.key[:16]}-{report.day:%Y-%m-%d}"
    kinds: tuple[tuple[str, str, Callable[[Report], bytes]], ...] = (
        ("html", "text/html", lambda one: as_html(one).encode()),
        ("pdf", "application/pdf", as_pdf),
    )
    with st.container(horizontal=True):
        for ending, mime, make in kinds:
            st.download_button(
                f"Statement as {ending.upper()}",
                partial(_made, report, make, require_later("look")),
                file_name=f"{name}.{ending}",
                mime=mime,
                icon=":material/signature:",
                on_click="ignore",
            )


def _made(report: Report, make: Callable[[Report], bytes], allowed: Callable[[], Member]) -> bytes:
    home().log(allowed().name, "exported", title_of(report))
    return make(report)


def _shown(people: People) -> None:
    requests = home().requests(people=people.key)
    books = open_books(people)
    approvals.render_waiting(books, requests)
    approvals.render_under_way(requests)
    check_mirrors(books)
    report = report_of(books, home().spending_rule(people.key), requests)
    _headline(report)
    approvals.render_rule(people, report.rule)
    _statement(report)
    _twelve(report)
    _entries(books)


def _asked_for(people: list[People]) -> None:
    """A link from a run's page names the run: the address then names its people."""
    run = st.query_params.get(RUN_PARAMETER)
    if run is None:
        return
    del st.query_params[RUN_PARAMETER]
    mine = by_run(people).get(run)
    if mine is not None:
        st.query_params[PARAMETER] = mine.key


@st.fragment(run_every=REFRESH_SECONDS)
def _watch(jobs: int) -> None:
    """Draw the page anew once a probe that was asked from here has ended."""
    with plain_errors():
        require("look")
        if probes.probes().count_open() != jobs:
            panel.forget_places()
            st.rerun()


def render() -> None:
    """Show the page."""
    st.title("Privacy")
    with plain_errors():
        require("look")
        if not all_runs():
            st.info("**No runs yet.** The page *Runs* says how to start one.")
            return
        st.caption(EXPLAINED)
        people = all_people()
        _asked_for(people)
        waiting: dict[str, int] = {}
        for one in home().requests(status="waiting"):
            waiting[one.people] = waiting.get(one.people, 0) + 1
        for group in people if len(people) > 1 else ():
            waiting[group.key] = waiting.get(group.key, 0) + _count_held_back(group.population)
        by_key = {one.key: one for one in people}
        if len(people) > 1:
            _listed(people, waiting)
        whose = pick("Whose privacy", by_key, lambda one: one.title(), PARAMETER)
        name_page("Privacy", whose.title())
        _shown(whose)
        jobs = probes.probes().count_open()
        if jobs:
            _watch(jobs)


PAGE = DashboardPage("Privacy", ":material/policy:", "privacy", 28, render)
