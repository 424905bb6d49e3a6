"""Runs as cards: what its samples look like, how far it is, what it has cost, what was found."""

from __future__ import annotations

from urllib.parse import quote

import streamlit as st

from fedlens.dashboard.access.session import store
from fedlens.dashboard.faults import panel
from fedlens.dashboard.privacy.books import PrivacyTotal
from fedlens.dashboard.samples import images
from fedlens.dashboard.samples.batches import KINDS, batch_identity, drop_damaged, rank_batches
from fedlens.dashboard.samples.filters import classes_of
from fedlens.dashboard.summary.audits import ALARM, has_alarm
from fedlens.dashboard.summary.badges import STATUS
from fedlens.dashboard.summary.privacy import NOT_PRIVATE, bounds, delta_text, epsilon_text
from fedlens.dashboard.widgets.display import put_card
from fedlens.dashboard.widgets.markup import picture, plain, size_of, tag, text
from fedlens.dashboard.widgets.pages import put_link
from fedlens.foundation.unlabelled import UNLABELLED
from fedlens.store import RoundRecord, RunRecord, SampleFilter, StoredBatch, StoredSample

WORTH = {"clear": "good", "noise": "bad"}
"""Colours of verdicts; that of others is ``on``."""
COLOURS = {"running": "on", "failed": "bad", "interrupted": "found"}
LINKS = {
    "run": "Open",
    "diagnosis": "Diagnosis",
    "samples": "Samples",
    "compare": "Compare",
}
COLUMNS, ROWS = 10, 4
GAP = 1
WIDEST = 340
"""Pixels of the picture: of larger samples it holds fewer classes, and all of their pixels."""


def render_run_card(
    run: RunRecord, last: RoundRecord | None, total: PrivacyTotal | None = None
) -> None:
    """Put one run on the page.

    Args:
        run: the run.
        last: its latest round.
        total: what was spent of its users in total, where the run's own figures are not all of it.
    """
    put_card(_inner(run, last, total), _kind(run))
    with st.container(horizontal=True, gap="small", key=f"links-{run.run_id}"):
        for page, label in LINKS.items():
            put_link(page, label, about=f"{label}: {plain(run.name)}", run=run.run_id)


def _kind(run: RunRecord) -> str:
    answer = panel.load_answer(run)
    return "found" if answer is not None and answer.fits and answer.findings else ""


def _inner(run: RunRecord, last: RoundRecord | None, total: PrivacyTotal | None) -> str:
    done = last.round if last else 0
    return (
        f'<div class="runcard">{_samples(run)}<div><div class="name">{text(run.name)}</div>'
        f"<div>{_tags(run)}</div>"
        f'<div class="meter" role="img" aria-label="round {done} of {run.rounds_planned}">'
        f'<i style="width:{100 * done / max(1, run.rounds_planned):.0f}%"></i></div>'
        f'<p class="line num">Round {done} of {run.rounds_planned}{_stop(run)}</p>'
        f'<p class="num">{_cost(last) if total is None else _in_total(run, last, total)}</p>'
        f'<p class="line">{text(run.data_name)} · {run.users:,} users · {run.created_at:%Y-%m-%d}'
        f" · {text(run.run_id[:12])}</p></div></div>"
    )


def _samples(run: RunRecord) -> str:
    batch, shown = newest_batch(run.run_id), _thumbnail(run)
    if batch is None or not shown:
        return '<div class="thumb">no samples yet</div>'
    columns = ", a column a class" if classes_of(run.run_id) else f", {UNLABELLED}"
    drawn = picture(shown, f"Synthetic samples of {run.name}{columns}")
    kind = f"{batch.provenance} · {KINDS[batch.purpose][1]} · round {batch.round}"
    return f'<div class="samples">{drawn}<p class="line">{text(kind)}</p></div>'


def _tags(run: RunRecord) -> str:
    words, _, _ = STATUS[run.status]
    tags = tag(words, COLOURS.get(run.status, "good"))
    if has_alarm(run.run_id):
        tags += tag(ALARM, "bad")
    elif not run.private:
        tags += tag(NOT_PRIVATE, "bad")
    worth = store().worth(run.run_id)
    if worth != "not judged":
        tags += tag(worth, WORTH.get(worth, "on"))
    if store().pinned_references().get(run.data_name) == run.run_id:
        tags += tag("pinned reference", "on")
    words, kind = panel.hint(run)
    where = f"diagnosis?run={quote(run.run_id)}"
    return tags + (f'<a href="{where}" target="_self">{tag(words, kind)}</a>' if words else "")


def _stop(run: RunRecord) -> str:
    return f" · stopped: {text(run.stop_reason)}" if run.stop_reason else ""


def _cost(last: RoundRecord | None) -> str:
    """DP first, for it binds for everybody; its Bayesian companion always beside it."""
    if last is None:
        return '<span class="quiet">No round done yet</span>'
    dp, sound = bounds(last)[:2]
    return (
        f"<b>DP ε {text(epsilon_text(dp.epsilon))}</b> "
        f'<span class="quiet">(δ {text(delta_text(dp.delta))}, any person) · '
        f"BDP ε {text(epsilon_text(sound.epsilon))} sound (δ {text(delta_text(sound.delta))}, "
        "people like those enrolled)</span>"
    )


def _in_total(run: RunRecord, last: RoundRecord | None, total: PrivacyTotal) -> str:
    """The binding figure of all that was spent of the same people, with the run's own behind it."""
    own = "" if last is None else f"; this run by itself DP ε {epsilon_text(last.dp_epsilon)}"
    return (
        f'<a href="privacy?run={quote(run.run_id)}" target="_self"><b>DP ε '
        f"{text(epsilon_text(total.epsilon))} in total</b></a> "
        f'<span class="quiet">(δ {text(delta_text(total.delta))}, any person) · BDP ε '
        f"{text(epsilon_text(total.bayesian))} sound (δ {text(delta_text(total.bayesian_delta))}, "
        f"people like those enrolled){text(own)}</span>"
    )


def newest_batch(run_id: str) -> StoredBatch | None:
    """The batch that is most like users' data, of the latest round that has one."""
    batches = rank_batches(store().batches(run_id))
    return batches[0] if batches else None


def by_class(batch: StoredBatch, each: int, classes: int = COLUMNS) -> list[list[StoredSample]]:
    """Up to ``each`` samples of each of the first classes of a batch, by class.

    Of unlabelled samples as many columns.
    """
    shown = classes_of(batch.run_id)[:classes]
    if not shown:
        wanted = SampleFilter(batch_id=batch.batch_id)
        found = drop_damaged(store().samples(wanted, limit=each * classes))
        return [found[place : place + each] for place in range(0, len(found), each)]
    return [
        drop_damaged(
            store().samples(SampleFilter(batch_id=batch.batch_id, requested_class=one), limit=each)
        )
        for one in shown
    ]


@st.cache_data(max_entries=256, show_spinner=False)
def _sheet(place: str, made_from: tuple[object, ...], _batch: StoredBatch) -> str:
    """The picture; of another store in the place of this one, batches have the same numbers."""
    columns = [samples for samples in by_class(_batch, ROWS) if samples]
    if not columns:
        return ""
    width, _ = size_of(columns[0][0].png)
    columns = columns[: max(1, WIDEST // (width + GAP))]
    rows = min(len(samples) for samples in columns)
    pngs = [samples[row].png for row in range(rows) for samples in columns]
    return images.base64_text(images.to_png(images.sheet(pngs, len(columns), GAP)))


def _thumbnail(run: RunRecord) -> str:
    """Base64 of a PNG, a column a class; empty where the run has no samples yet."""
    batch = newest_batch(run.run_id)
    return "" if batch is None else _sheet(store().place, batch_identity(batch), batch)
