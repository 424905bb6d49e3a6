"""What every page starts from: the store and the run that is looked at."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias, TypeVar

import streamlit as st

from fedlens.dashboard.access.workspace import all_stores, owner_of, runs_by_store
from fedlens.dashboard.widgets.markup import plain
from fedlens.dashboard.widgets.options import STORE_VARIABLE
from fedlens.store import RunRecord, Store, StoreError, open_store
from fedlens.store.engine import locate

RUN_PARAMETER = "run"
FAILED = "This part of the page could not be drawn"
Thing = TypeVar("Thing")
OptionT = TypeVar("OptionT")


@st.cache_resource(show_spinner=False)
def _open(url: str, file_number: int) -> Store:
    return open_store(url)


def _file_number(url: str) -> int:
    """Tells a SQLite file from one that has taken its place; 0 for other databases."""
    path = locate(url).path
    return path.stat().st_ino if path is not None and path.exists() else 0


def home() -> Store:
    """The store that the dashboard was started on, which holds accounts, sessions and the log.

    Raises:
        StoreError: it is not there (any more) or at another revision.
    """
    url = store_url()
    return _open(url, _file_number(url))


LOOKED_AT = "store_looked_at"
"""Of the session: the store of the run that the page is about, where it is not the own one."""
_WITHIN: ContextVar[Store | None] = ContextVar("within", default=None)


def store() -> Store:
    """The store of the run that the page looks at; the dashboard's own where it looks at none.

    Raises:
        StoreError: the dashboard's own is not there (any more) or at another revision.
    """
    within = _WITHIN.get()
    if within is not None:
        return within
    looked_at = st.session_state.get(LOOKED_AT)
    return looked_at if isinstance(looked_at, Store) else home()


def store_of(run_id: str) -> Store:
    """The store that knows a run; the dashboard's own where none does."""
    return owner_of(home(), run_id)


@contextmanager
def within_store_of(run_id: str) -> Iterator[None]:
    """Meanwhile `store` is the one that knows this run: for pages that show runs of several."""
    token = _WITHIN.set(store_of(run_id))
    try:
        yield
    finally:
        _WITHIN.reset(token)


def look_at(run_id: str | None) -> None:
    """Have the session's page be about a run: `store` is the one that knows it from now on."""
    owner = None if run_id is None else store_of(run_id)
    st.session_state[LOOKED_AT] = None if owner is home() else owner


Pins: TypeAlias = Mapping[str, Mapping[str, str]]
"""The pinned runs by the name of their data, by the place of the store that pins them."""


def all_pins() -> Pins:
    """What each store of the workspace pins: asked once for a list of runs."""
    return {one.place: one.pinned_references() for one in all_stores(home())}


def pinned_reference(run: RunRecord, pins: Pins | None = None) -> str | None:
    """The id of the run that is pinned for a run's data, in its own store before the others."""
    known = all_pins() if pins is None else pins
    own = store_of(run.run_id).place if len(known) > 1 else ""
    for place in sorted(known, key=lambda place: place != own):
        pinned = known[place].get(run.data_name)
        if pinned is not None and pinned != run.run_id:
            return pinned
    return None


def all_runs(*, with_samples: bool = False) -> list[RunRecord]:
    """The runs of all stores of the workspace, those of the last day first.

    Args:
        with_samples: only those that have samples.
    """
    stores = runs_by_store(home(), with_samples=with_samples)
    found = [run for _, runs in stores for run in runs]
    return sorted(found, key=lambda run: (run.created_at, run.name), reverse=True)


def store_url() -> str:
    """URL of the store that the dashboard was started on.

    Raises:
        StoreError: it was started on none.
    """
    url = os.environ.get(STORE_VARIABLE, "")
    if not url:
        raise StoreError("no store is named: start the dashboard with `fedlens dashboard`")
    return url


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show what went wrong as one sentence on the page, and stop there.

    Anything unforeseen goes to the server's log with its trace; the page names its type alone.
    """
    try:
        yield
    except StoreError as error:
        st.error(f"The store cannot answer: {plain(error)}", icon=":material/database_off:")
        st.button("Try again", key="try_again")
        st.stop()
    except Exception as error:  # a page that fails must not show another program's texts
        logging.getLogger("fedlens.dashboard").exception("a page failed")
        st.error(f"{FAILED} ({type(error).__name__}). The server's log says more.")
        st.button("Try again", key="try_again")
        st.stop()


PAGE_NAME = "page_name"


def name_page(title: str, of: str = "") -> None:
    """Give the browser's tab, history and bookmarks the page's own name.

    Args:
        title: of the page.
        of: the thing that it shows.
    """
    st.session_state[PAGE_NAME] = title
    st.set_page_config(page_title=" · ".join(one for one in (of, title, "fedlens") if one))


def _follow_address(key: str, asked: str | None, place: object) -> bool:
    """Give a widget the address's choice where the browser's Back or Forward has changed that.

    What the widget itself chose is written to the address by `_write_address`, so anything else
    that stands there came from the browser. Whether the widget has a value of its own.
    """
    if key in st.session_state and asked != st.session_state.get(f"written_{key}"):
        st.session_state[key] = place
    return key in st.session_state


def _write_address(key: str, parameter: str, value: str | None) -> None:
    """Write a widget's choice to the address; ``None`` takes it out."""
    if value is not None:
        st.query_params[parameter] = value
    elif parameter in st.query_params:
        del st.query_params[parameter]
    st.session_state[f"written_{key}"] = value


def pick(
    label: str, things: Mapping[str, Thing], title: Callable[[Thing], str], parameter: str
) -> Thing:
    """A picker whose choice lives in the address, so that it survives a reload.

    Other pages of the session begin with it too: their links carry no address of a thing.

    Args:
        label: what is picked.
        things: what there is to choose from by id, at least one, the newest first.
        title: under which a thing is shown.
        parameter: of the address; also names the widget, as ``picked_...``.
    """
    ids = list(things)
    remembered = f"remembered_{parameter}"
    asked = st.query_params.get(parameter)
    if asked is None and st.session_state.get(remembered) in things:
        asked = st.session_state[remembered]
    if asked is not None and asked not in things:
        what = label.lower()
        st.warning(f"There is no {what} {plain(asked)} in this store; showing the newest one.")
    key, place = f"picked_{parameter}", asked if asked in things else ids[0]
    owned = _follow_address(key, st.query_params.get(parameter), place)
    chosen = st.selectbox(
        label,
        ids,
        index=0 if owned else ids.index(str(place)),
        format_func=lambda one: title(things[one]),
        key=key,
    )
    _write_address(key, parameter, chosen)
    st.session_state[remembered] = chosen
    return things[chosen]


def forget(parameter: str, value: str) -> None:
    """Have a picker not begin with what was picked last, where that is this value."""
    if remembered(parameter) == value and parameter not in st.query_params:
        del st.session_state[f"remembered_{parameter}"]


def remembered(parameter: str) -> str | None:
    """What was last picked for a parameter of the address in this session."""
    said = st.session_state.get(f"remembered_{parameter}")
    return None if said is None else str(said)


def choice(
    label: str, options: Sequence[OptionT], words: Callable[[OptionT], str], parameter: str
) -> OptionT:
    """A select box whose choice lives in the address, so that a link shows the same.

    Args:
        label: what is chosen.
        options: at least one; the first is chosen where the address names none of them.
        words: what an option is called.
        parameter: of the address, where an option stands as a text.
    """
    texts = [str(option) for option in options]
    asked = st.query_params.get(parameter)
    at = texts.index(asked) if asked in texts else 0
    key = f"chosen_{parameter}_{hash(tuple(texts)) & 0xFFFFFF:x}"
    owned = _follow_address(key, asked, at)
    place = st.selectbox(
        label,
        range(len(options)),
        index=0 if owned else at,
        format_func=lambda i: words(options[i]),
        key=key,
        disabled=len(options) < 2,
    )
    _write_address(key, parameter, texts[place] if place else None)
    return options[place or 0]


def choose_page(total: int, at_once: int, label: str = "Page") -> int:
    """A picker of the page of so many things, whose choice lives in the address; its offset.

    Args:
        total: how many things there are.
        at_once: how many a page shows.
        label: over the picker.
    """
    pages = max(1, math.ceil(total / at_once))
    numbers = [str(number + 1) for number in range(pages)]
    return (int(choice(label, numbers, lambda i: f"{i} of {pages}", "page")) - 1) * at_once


def pick_run(runs: list[RunRecord]) -> RunRecord:
    """A picker of runs, of which there is at least one; the page is about it.

    The newest stand first, probes last: their answers are part of the runs that were asked.
    """
    sorted_runs = sorted(runs, key=lambda run: run.is_probe)
    run = pick("Run", {run.run_id: run for run in sorted_runs}, run_title, RUN_PARAMETER)
    look_at(run.run_id)
    name_page(str(st.session_state.get(PAGE_NAME, "")), run.name)
    return run


def nearby(place: str) -> str:
    """A path as seen from here, where that is shorter; other places as they are."""
    return place.removeprefix(f"{Path.cwd()}/")


def run_title(run: RunRecord) -> str:
    """A run's name with enough of its id to tell two of the same name apart."""
    return run.name if run.run_id == run.name else f"{run.name} · {run.run_id[:12]}"
