"""Runs: what was trained, what it looks like, what it has cost and what was found in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import streamlit as st

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import (
    RUN_PARAMETER,
    all_pins,
    all_runs,
    home,
    nearby,
    plain_errors,
    store,
    store_of,
    within_store_of,
)
from fedlens.dashboard.access.workspace import (
    MOST_FOLDERS,
    STORES,
    found_below,
    runs_by_store,
)
from fedlens.dashboard.faults import panel
from fedlens.dashboard.privacy.books import PrivacyTotal, Totals
from fedlens.dashboard.summary import cards
from fedlens.dashboard.summary.audits import ALARM
from fedlens.dashboard.summary.badges import STATUS
from fedlens.dashboard.summary.overlay import render_overlay
from fedlens.dashboard.summary.privacy import (
    ASSUMPTIONS,
    NOT_PRIVATE,
    bounds,
    delta_text,
    epsilon_text,
)
from fedlens.dashboard.widgets.markup import plain
from fedlens.dashboard.widgets.pages import PAGES, DashboardPage
from fedlens.dashboard.widgets.rows import Views, rows
from fedlens.store import RoundRecord, RunGlance, RunRecord

START_HINT = "fedlens simulate --preset demo --out runs/demo"
NONE_YET = "–"
FEW = 4
"""Up to so many runs stand as large cards too."""
REFRESH_SECONDS = 4
LOOK_AGAIN_SECONDS = 15
"""Where nothing goes on: another run may have begun."""
LARGEST_EPSILON = 1e300
"""Stands for infinity, which JSON has not got."""
LONGEST_NAME = 48


def row(
    run: RunRecord,
    glance: RunGlance | None,
    diagnosis: tuple[str, str],
    total: PrivacyTotal | None = None,
) -> dict[str, Any]:
    """One line of the list.

    Args:
        run: whose line it is.
        glance: what its store knows of it in short.
        diagnosis: in words, with its colour.
        total: what was spent of its users in total, where the run's own figures are not all of it.
    """
    last = None if glance is None else glance.last
    worth = "" if glance is None or glance.worth == "not judged" else glance.worth
    done = last.round if last else 0
    picture = f"thumbnail/{quote(run.run_id)}?v={glance.batches}" if glance else ""
    words, _, _ = STATUS[run.status]
    return {
        "id": run.run_id,
        "picture": picture if glance and glance.batches else "",
        "name": _cell(short(run.name), under=_flaws(run, glance), page="run"),
        "data": _cell(run.data_name),
        "users": _cell(f"{run.users:,}", order=run.users, under=f"per {run.unit}"),
        "rounds": _cell(f"{done} / {run.rounds_planned}", order=done),
        "epsilon": _spent(last) if total is None else _in_total(total, last),
        "worth": _cell(worth, kind=cards.WORTH.get(worth, "on")),
        "diagnosis": _cell(diagnosis[0], kind=diagnosis[1], page="diagnosis"),
        "status": _cell(words, kind=cards.COLOURS.get(run.status, "good"), under=_doing(run, done)),
        "started": _cell(f"{run.created_at:%Y-%m-%d}"),
    }


def _cell(text: str, *, order: float | None = None, **more: str) -> dict[str, Any]:
    return {"text": text, "order": text.lower() if order is None else order} | more


def _spent(last: RoundRecord | None) -> dict[str, Any]:
    """DP first, which binds for everybody; its Bayesian companion always with it."""
    if last is None:
        return _cell(NONE_YET, order=-1.0)
    dp, sound = bounds(last)[:2]
    said = f"DP {epsilon_text(dp.epsilon)} (δ {delta_text(dp.delta)})"
    under = f"BDP {epsilon_text(sound.epsilon)} sound (δ {delta_text(sound.delta)})"
    return _cell(said, order=min(dp.epsilon, LARGEST_EPSILON), under=under)


def _in_total(total: PrivacyTotal, last: RoundRecord | None) -> dict[str, Any]:
    """The binding figure of all that was spent of the same people, and what the run is of it."""
    said = f"DP {epsilon_text(total.epsilon)} (δ {delta_text(total.delta)})"
    bayesian = f"BDP {epsilon_text(total.bayesian)} sound (δ {delta_text(total.bayesian_delta)})"
    own = "" if last is None else f"; this run DP {epsilon_text(last.dp_epsilon)}"
    under = f"{bayesian}, in total{own}"
    return _cell(said, order=min(total.epsilon, LARGEST_EPSILON), under=under)


def _flaws(run: RunRecord, glance: RunGlance | None) -> str:
    if glance is not None and glance.alarm:
        return ALARM
    return "" if run.private else NOT_PRIVATE


def _doing(run: RunRecord, done: int) -> str:
    """What a run that goes on is at."""
    if run.status != "running":
        return ""
    if done >= run.rounds_planned:
        return "all rounds done: drawing samples"
    if done == run.rounds_planned - 1:
        return "last round, then its samples are drawn"
    return f"training round {done + 1}"


def short(name: str) -> str:
    """A name that leaves room for the other columns: its middle is left out."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half + 1 :]}"


def _empty() -> None:
    st.info("**No runs yet.** Start one in a terminal; it appears here by itself.")
    st.code(START_HINT, language="bash")
    st.button("Look again", key="look_again")


def _last(run: RunRecord) -> RoundRecord | None:
    rounds = store_of(run.run_id).rounds(run.run_id)
    return rounds[-1] if rounds else None


def _list(every: int | None) -> None:
    """The list, which renews itself while something is going on or may appear."""
    with plain_errors():
        require("look")
        found, totals, pins = _with_glances(), Totals(), all_pins()
        if every is not None and not _busy([run for run, _ in found]):
            st.rerun()
        shown = [
            row(run, glances.get(run.run_id), panel.hint(run, pins), totals.beyond(run))
            for run, glances in found
        ]
        views = Views(home().saved_views(), _save_view if account().may("manage") else None)
        said = rows(shown, key="runs", views=views)
        render_overlay([run for run, _ in found if run.run_id in said.ticked])
    if said.opened is not None:
        page, run_id = said.opened
        st.switch_page(PAGES[page].in_navigation(), query_params={RUN_PARAMETER: run_id})


def _save_view(name: str, address: str | None) -> None:
    """Keep what the list is set to under a name, for all; or delete what has the name."""
    with plain_errors():
        author = require("manage").name
        if address is None:
            home().delete_view(name)
        else:
            home().save_view(name, address, author=author)


def _with_glances() -> list[tuple[RunRecord, dict[str, RunGlance]]]:
    found = [(run, owner) for owner, runs in runs_by_store(home()) for run in runs]
    owners = {owner.place: owner for _, owner in found}
    glances = {place: owner.glances() for place, owner in owners.items()}
    found.sort(key=lambda one: (one[0].created_at, one[0].name), reverse=True)
    return [(run, glances[owner.place]) for run, owner in found]


def _busy(runs: Sequence[RunRecord]) -> bool:
    return any(run.status == "running" or panel.under_way(run.run_id) for run in runs)


def _cards(ids: list[str]) -> None:
    """Cards that renew themselves while something is going on."""
    with plain_errors():
        require("look")
        columns, totals = st.columns(2, gap="medium"), Totals()
        for place, run_id in enumerate(ids):
            with columns[place % 2], within_store_of(run_id):
                run = store().run(run_id)
                cards.render_run_card(run, _last(run), totals.beyond(run))


def _waiting() -> None:
    """An empty page that renews itself as soon as there is a run."""
    require("look")
    if all_runs():
        st.rerun()


def render() -> None:
    """Show the page."""
    st.title("Runs")
    with plain_errors():
        for path, why in STORES.unreadable.items():
            st.warning(f"Left out: {plain(nearby(path))}. {plain(why)}")
        if not found_below().whole:
            st.warning(
                f"The first {MOST_FOLDERS:,} folders alone were looked through: runs may be "
                "missing. Open the dashboard on a folder with fewer."
            )
        runs = all_runs()
        if not runs:
            _empty()
            st.fragment(_waiting, run_every=REFRESH_SECONDS)()
            return
        ended = [run for run in runs if run.status in panel.ENDED and not run.is_probe]
        if ended:
            with within_store_of(ended[0].run_id):
                panel.look(ended[0])
        every = REFRESH_SECONDS if _busy(runs) else None
        if len(runs) <= FEW:
            st.fragment(_cards, run_every=every)([run.run_id for run in runs])
        st.fragment(_list, run_every=every or LOOK_AGAIN_SECONDS)(every)
        st.caption(ASSUMPTIONS)


PAGE = DashboardPage("Runs", ":material/list:", "runs", 10, render)
