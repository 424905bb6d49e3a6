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
from walking import Walker

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


def test_a_fault_is_confirmed_by_a_probe_filed_and_reported_in_eight_clicks(
    browser: Any, served_run: Served, run: fedlens.Run
) -> None:
    """Once, at the price shown, and the answer stands beside the claim; no terminal is needed."""
    walker = Walker(browser, served_run)
    page, folder = walker.page, Path(run.path).parent
    clicks: list[str] = []

    def click(role: Any, name: str) -> None:
        clicks.append(name)
        page.get_by_role(role, name=name).first.click()

    click("link", "diagnosis: ")
    page.get_by_text("turned left by 90 degrees").first.wait_for()
    click("button", "Ask it from here")
    page.get_by_text("It cannot be taken back").wait_for()
    assert not list(folder.glob("tiny-probe-*"))  # nothing is spent by looking at a price
    click("button", "Spend it and ask")
    page.get_by_text("Being asked").wait_for()
    page.get_by_text("Being asked").wait_for(state="detached", timeout=120_000)
    page.get_by_text("Asked of all users").first.wait_for()
    assert page.get_by_role("button", name="Ask it from here").count() == 0
    page.reload()
    page.get_by_text("Asked of all users").first.wait_for()
    assert page.get_by_role("button", name="Ask it from here").count() == 0
    walker.look("light", "dark")
    click("button", "Keep as a finding")
    click("link", "Finding 1: open")
    clicks.append("Confirmed")
    page.get_by_text("Confirmed", exact=True).click()
    click("button", "Save")
    page.locator(".card .tag", has_text="Confirmed").first.wait_for()
    with page.expect_download() as downloaded:
        click("button", "Report to share")
    report = Path(downloaded.value.path()).read_text()
    assert "Asked of all users" in report and "turned left by 90 degrees" in report
    assert len(clicks) <= 8
    (entry,) = Ledger.verify(folder / "tiny-probe-1" / "ledger.jsonl")
    assert entry.purpose == "probe"
    walker.leave()
