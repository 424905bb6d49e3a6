"""Several samples at once: tagged, or kept as evidence of a finding."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fedlens.dashboard.access.account import account, require
from fedlens.dashboard.access.session import store
from fedlens.dashboard.widgets.markup import tag, text
from fedlens.store import RunRecord, StoredSample, TagEntry

LONGEST_TAG = 40
SHOWN = 100
"""Lines of a run's history of tags, the last ones."""
HOW = (
    "Shift and a click chooses all up to it, Ctrl and a click or the space bar one more or less, "
    "Escape none."
)


def _key(run_id: str) -> str:
    return f"chosen-{run_id}"


def _turn(run_id: str) -> str:
    return f"turn-{run_id}"


def selection_turn(run_id: str) -> int:
    """A number for the grid; with another one it forgets what was chosen."""
    return int(st.session_state.get(_turn(run_id), 0))


def store_selection(run_id: str, sample_ids: list[int]) -> None:
    """Take up what the browser says is chosen."""
    st.session_state[_key(run_id)] = sample_ids


def _clear(run_id: str) -> None:
    st.session_state[_key(run_id)] = []
    st.session_state[_turn(run_id)] = selection_turn(run_id) + 1


def list_chosen(run_id: str, shown: Sequence[int], picked: StoredSample | None) -> list[int]:
    """The samples that are chosen of those shown, or else the one that is enlarged."""
    there = set(shown)
    kept = [one for one in st.session_state.get(_key(run_id), []) if one in there]
    return kept or ([] if picked is None else [picked.sample_id])


def render_tagging(run: RunRecord, shown: Sequence[int], picked: StoredSample | None) -> None:
    """What may be done with the samples that are chosen, for roles that may."""
    if not account().may("review"):
        return
    ids = list_chosen(run.run_id, shown, picked)
    several = f"{len(ids):,} samples chosen" if len(ids) != 1 else "1 sample chosen"
    with st.expander(several if ids else "Choose samples to tag them", expanded=len(ids) > 1):
        st.caption(HOW)
        if ids:
            _tagging(run, ids)
            if account().may("manage"):
                _evidence(run, ids)
            if len(ids) > 1:
                st.button("Clear selection", on_click=_clear, args=(run.run_id,))


def _tagging(run: RunRecord, ids: list[int]) -> None:
    given = {one for tags in store().tags_of(ids).values() for one in tags}
    known = list(store().tags(run.run_id))
    named = st.selectbox(
        "Tag",
        known,
        index=None,
        accept_new_options=True,
        placeholder="A new tag, or one that there is",
        key=f"tag-{run.run_id}",
    )
    with st.container(horizontal=True):
        if st.button("Add tag", disabled=not named):
            added = store().tag_samples(ids, str(named), author=require("review").name)
            st.toast(f"{added:,} samples tagged")
            st.rerun()
        if st.button("Take tag away", disabled=named not in given):
            author = require("review").name
            gone = store().untag_samples(ids, str(named), author=author)
            store().log(author, "tag taken away", f"{named}, {gone} samples of run {run.name}")
            st.rerun()


def render_tag_history(run: RunRecord) -> None:
    """Who gave and took which tags of the run's samples, by day; nothing where there were none."""
    entries = store().tag_history(run.run_id, limit=SHOWN)
    if entries:
        with st.expander("History of tags"):
            st.html(f'<dl class="facts history">{"".join(map(_line, entries))}</dl>')


def _line(entry: TagEntry) -> str:
    several = f"{entry.samples:,} samples" if entry.samples != 1 else "1 sample"
    did = "given to" if entry.added else "taken from"
    return (
        f"<dt>{entry.day:%Y-%m-%d}<br>{text(entry.actor)}</dt>"
        f"<dd>{tag(entry.tag)} {did} {several}</dd>"
    )


def _evidence(run: RunRecord, ids: list[int]) -> None:
    """Offer the findings of the run."""
    found = {one.finding_id: one for one in store().findings(run_id=run.run_id)}
    if not found:
        st.caption("Findings of this run, once there are any, take samples as evidence.")
        return
    number = st.selectbox(
        "Finding",
        list(found),
        format_func=lambda one: f"{one}: {found[one].hypothesis}",
        key=f"evidence-{run.run_id}",
    )
    if st.button("Add as evidence"):
        author = require("manage").name
        added = store().add_samples_to_finding(number, ids, author=author)
        st.toast(f"{added:,} samples added to finding {number}")
