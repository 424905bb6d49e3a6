"""Stores to look at, pages without a browser, and a real server with a real browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import populated
import pytest
from serving import CHROMIUM, CHROMIUM_ARGUMENTS, Served, start_dashboard, stop_dashboard
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from fedlens.dashboard.access.session import FAILED
from fedlens.dashboard.serve import MAIN_SCRIPT
from fedlens.dashboard.widgets.options import STORE_VARIABLE, USER_VARIABLE
from fedlens.store import Store


@pytest.fixture
def store_at(tmp_path: Path) -> Iterator[tuple[str, Store]]:
    """An empty store with its URL."""
    url, store = populated.new_store(tmp_path)
    with store:
        yield url, store


@pytest.fixture
def open_page(
    store_at: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AppTest]:
    """Opens a page of the dashboard over the store, with query parameters."""
    monkeypatch.setenv(STORE_VARIABLE, store_at[0])
    monkeypatch.setenv(USER_VARIABLE, "tester")

    def open_(page: str, **query: str) -> AppTest:
        app = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=30)
        app._page_hash = calc_hash(page)  # switch_page knows pages that are files alone
        for name, value in query.items():
            app.query_params[name] = value
        shown = app.run()
        assert not [error.value for error in shown.error if FAILED in error.value]
        return shown

    return open_


@pytest.fixture
def served(store_at: tuple[str, Store], tmp_path: Path) -> Iterator[Served]:
    """The store of ``store_at``, served; fill it through its own face at any time."""
    running = start_dashboard(store_at[0], tmp_path)
    yield running
    if running.process.poll() is None:
        stop_dashboard(running)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Debian's browser. In CI its absence is a failure: these tests must not become fewer."""
    if CHROMIUM.exists():
        return CHROMIUM
    reason = f"{CHROMIUM} is missing: python tests/browser_setup.py installs it where it may"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Any]:
    """One browser for all tests of a file, closed after it: a process can drive one at a time."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(
            executable_path=str(chromium), headless=True, args=list(CHROMIUM_ARGUMENTS)
        )
        yield running
        running.close()


@pytest.fixture
def signed_in_page(browser: Any, served: Served) -> Iterator[Any]:
    """A page of a fresh profile, signed in to ``served``; no script may have failed on it."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.request.get(served.link)
    wrong: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    context.close()
    assert wrong == []
