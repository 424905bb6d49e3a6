"""The privacy officer's path in a real browser: a rule, a request, a decision, a statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diagnosed
import populated
import pytest
from serving import Served, start_dashboard, stop_dashboard
from tiny import TINY
from walking import PASSWORD, Walker

import fedlens
from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.cli import main
from fedlens.dashboard.faults.jobs import RunPlace
from fedlens.dashboard.summary.privacy import epsilon_text
from fedlens.foundation.errors import ExitStatus

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
FOUND = diagnosed.TURNED | {"probe": "repeats"}


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A population's folder, with one run of a second that has a finding to be probed."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "populations" / "ward"
    Population.create(folder, PopulationTerms("ward", "user", 1e-3, 8.0, users=30))
    out = tmp_path / "runs" / "tiny"
    settings = TINY | {"privacy.population": "ward"}
    run = fedlens.simulate("demo", out=out, settings=settings, student=False)
    diagnosed.keep(RunPlace(run.id, out), diagnosed.said(findings=[FOUND]))
    return folder


@pytest.fixture
def served_ward(ward: Path, tmp_path: Path) -> Iterator[Served]:
    root = tmp_path / "runs"
    with populated.new_store(root)[1] as store:
        store.add_account("otto", "officer", PASSWORD, actor="test")
        store.add_account("eve", "engineer", PASSWORD, actor="test")
    running = start_dashboard(str(root / "store.db"), root, workspace=root)
    yield running
    stop_dashboard(running)


def ask(engineer: Walker, run: str, why: str) -> None:
    page = engineer.go(f"diagnosis?run={run}")
    page.get_by_role("button", name="Ask an officer").click()
    page.get_by_label("What for").fill(why)
    page.get_by_label("What for").press("Enter")
    engineer.still()
    page.get_by_role("button", name="Send the request").click()
    page.get_by_text("Waits for an officer").wait_for()


def test_an_officer_sets_a_rule_decides_and_files(
    browser: Any, served_ward: Served, ward: Path, tmp_path: Path
) -> None:
    run = Population.read(ward).shares()[0].run
    officer, engineer = (
        Walker(browser, served_ward, name, at="privacy") for name in ("otto", "eve")
    )
    desk = officer.page
    desk.get_by_text("Question 12 of 12").wait_for()
    assert desk.title().startswith("Population ward · Privacy")
    assert desk.get_by_role("link", name="Team").count() == 0
    officer.still()
    desk.get_by_text("From when on you are asked").click()
    officer.still()
    desk.get_by_label("Approve probes that cost more than").fill("0.1")
    desk.get_by_label("Approve probes that cost more than").press("Tab")
    desk.get_by_text("Ask an officer", exact=True).click()
    playwright.expect(desk.get_by_role("checkbox", name="Ask an officer")).to_be_checked()
    playwright.expect(desk.get_by_label("Approve probes that cost more than")).to_have_value("0.10")
    desk.get_by_role("button", name="Set", exact=True).click()
    desk.get_by_text("a probe waits for an officer").wait_for()

    asked = ["probe", str(tmp_path / "runs" / "tiny"), "--probe", "dark_border", "--epsilon", "0.3"]
    assert main(asked) == ExitStatus.OUT_OF_BUDGET, "the rule binds commands too"
    assert not list((tmp_path / "runs").glob("tiny-probe-*"))
    held = desk.get_by_text("A run or a command wants to ask")
    officer.go("privacy")
    held.wait_for()
    officer.look("light", "dark")
    desk.get_by_role("button", name="Approve", exact=True).click()
    held.wait_for(state="detached")
    assert main(asked) == ExitStatus.DONE, "a question that the page Diagnosis does not ask"
    before = Population.read(ward).spent().epsilon
    ask(engineer, run, "is it real?")
    engineer.look()
    officer.go("privacy")
    desk.get_by_text("is it real?").wait_for()
    officer.look("light", "dark")
    desk.get_by_role("button", name="Decline").click()
    desk.get_by_text("say why it is declined").wait_for()
    desk.get_by_label("Reason").fill("ask a smaller one")
    desk.get_by_role("button", name="Decline").click()
    desk.get_by_text("is it real?").wait_for(state="detached")
    engineer.go(f"diagnosis?run={run}")
    engineer.page.get_by_text("otto: ask a smaller one").wait_for()
    assert Population.read(ward).spent().epsilon == before

    ask(engineer, run, "the second try")
    officer.go("privacy")
    desk.get_by_role("button", name="Approve and ask").click()
    desk.get_by_text("1 run and 2 probes").first.wait_for(timeout=180_000)
    engineer.go(f"diagnosis?run={run}")
    engineer.page.get_by_text("Asked of all users").first.wait_for(timeout=60_000)
    after = Population.read(ward)
    assert main(asked) == ExitStatus.OUT_OF_BUDGET, "an approval lets one probe through"
    assert after.spent().epsilon > before
    total = f"DP ε {epsilon_text(after.spent().epsilon)}"
    for path in ("privacy", "run", ""):
        page = officer.go(path)
        page.get_by_text(total).first.wait_for()
    page = officer.go("privacy")
    page.get_by_text(after.ledger.head).first.wait_for()
    head = page.get_by_role("textbox", name="Head that was filed before")
    head.fill(after.ledger.entries[0].hash)
    head.press("Enter")
    page.get_by_text("Held: it is entry 1 of 4").wait_for()
    for kind, begins in (("HTML", b"<!DOCTYPE html>"), ("PDF", b"%PDF-")):
        with page.expect_download() as downloaded:
            page.get_by_role("button", name=f"Statement as {kind}").click()
        kept = tmp_path / f"statement.{kind}"
        downloaded.value.save_as(kept)
        assert kept.read_bytes().startswith(begins)
    officer.leave()
    engineer.leave()
