"""A finding's probe, asked from the page where the finding stands, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diagnosed
import populated
import pytest
from serving import Served, start_dashboard, stop_dashboard
from tiny import TINY

import fedlens
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.dashboard.faults.jobs import RunPlace

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
FOUND = diagnosed.TURNED | {"probe": "repeats"}
"""A fault with a probe that needs no network of the run's."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedlens.Run:
    """A run of a second with a kept diagnosis that found a fault."""
    out = tmp_path_factory.mktemp("probes") / "tiny"
    trained = fedlens.simulate("demo", out=out, settings=TINY, student=False)
    diagnosed.keep(RunPlace(trained.id, out), diagnosed.said(findings=[FOUND]))
    return trained


@pytest.fixture
def served_run(run: fedlens.Run) -> Iterator[Served]:
    folder = Path(run.path).parent
    populated.new_store(folder)[1].close()
    running = start_dashboard(str(folder / "store.db"), folder, workspace=folder)
    yield running
    stop_dashboard(running)


def test_a_probe_is_asked_once_at_the_price_shown_and_answered_beside_the_claim(
    browser: Any, served_run: Served, run: fedlens.Run
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.request.get(served_run.link)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{served_run.address}/diagnosis")
    page.get_by_text("turned left by 90 degrees").first.wait_for()
    page.get_by_role("button", name="Ask it from here").click()
    page.get_by_text("It cannot be taken back").wait_for()
    folder = Path(run.path).parent
    assert not list(folder.glob("tiny-probe-*"))  # nothing is spent by looking at a price
    page.get_by_role("button", name="Spend it and ask").click()
    page.get_by_text("Being asked").wait_for()
    page.get_by_text("Being asked").wait_for(state="detached", timeout=120_000)
    page.get_by_text("Asked of all users").first.wait_for()
    page.get_by_text("Asked of all users").first.wait_for()
    assert page.get_by_role("button", name="Ask it from here").count() == 0
    page.reload()
    page.get_by_text("Asked of all users").first.wait_for()
    assert page.get_by_role("button", name="Ask it from here").count() == 0
    (entry,) = Ledger.verify(folder / "tiny-probe-1" / "ledger.jsonl")
    assert entry.purpose == "probe"
    context.close()
