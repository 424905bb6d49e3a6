"""What every page starts from: the store, the annotator and the run that is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import streamlit as st

from dashboard.options import STORE_VARIABLE, USER_VARIABLE
from server.store import RunRecord, Store, StoreError, open_store
from server.store.engine import locate

RUN_PARAMETER = "run"
Thing = TypeVar("Thing")


@st.cache_resource(show_spinner=False)
def _open(url: str, file_number: int) -> Store:
    return open_store(url)


def _file_number(url: str) -> int:
    """Tells a SQLite file from one that has taken its place; 0 for other databases."""
    path = locate(url).path
    return path.stat().st_ino if path is not None and path.exists() else 0


def store() -> Store:
    """The store that the dashboard was started on; one set of connections for all sessions.

    Raises:
        StoreError: it is not there (any more) or at another revision.
    """
    url = os.environ.get(STORE_VARIABLE, "")
    if not url:
        raise StoreError("no store is named: start the dashboard with `fedlens dashboard`")
    return _open(url, _file_number(url))


def annotator() -> tuple[str, int]:
    """Name and id under which this session's answers are stored."""
    name = os.environ.get(USER_VARIABLE, "local")
    return name, store().ensure_user(name)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show a store's complaint as one sentence on the page, and stop there."""
    try:
        yield
    except StoreError as error:
        st.error(f"The store cannot answer: {error}", icon=":material/database_off:")
        st.button("Try again", key="try_again")
        st.stop()


def pick(
    label: str, things: Mapping[str, Thing], title: Callable[[Thing], str], parameter: str
) -> Thing:
    """A picker whose choice lives in the address, so that it survives a reload.

    Args:
        label: what is picked.
        things: what there is to choose from by id, at least one, the newest first.
        title: under which a thing is shown.
        parameter: of the address; also names the widget, as ``picked_...``.
    """
    ids = list(things)
    asked = st.query_params.get(parameter)
    if asked is not None and asked not in things:
        what = label.lower()
        st.warning(f"There is no {what} {asked!r} in this store; showing the newest one.")
    chosen = st.selectbox(
        label,
        ids,
        index=ids.index(asked) if asked is not None and asked in things else 0,
        format_func=lambda one: title(things[one]),
        key=f"picked_{parameter}",
    )
    st.query_params[parameter] = chosen
    return things[chosen]


def pick_run(runs: list[RunRecord]) -> RunRecord:
    """A picker of runs, of which there is at least one, the newest first."""
    return pick("Run", {run.run_id: run for run in runs}, run_title, RUN_PARAMETER)


def run_title(run: RunRecord) -> str:
    """A run's name with enough of its id to tell two of the same name apart."""
    return run.name if run.run_id == run.name else f"{run.name} · {run.run_id[:12]}"
