"""Paths of a newcomer, an engineer, two annotators and a reviewer; the officer's is in a file of
its own. Each fails on any error of the console, serious violation or request elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diagnosed
import populated
import pytest
from serving import Served
from walking import PASSWORD, Walker

from fedlens.store import Store

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser


def test_a_newcomer_opens_every_page_of_an_empty_store_and_sees_the_first_run_appear(
    browser: Any, served: Served, store_at: tuple[str, Store]
) -> None:
    walker = Walker(browser, served)
    page = walker.page
    page.get_by_text("fedlens simulate").wait_for()
    links = page.get_by_test_id("stTopNavLink").all_inner_texts()
    names = [one.split("\n")[-1] for one in links]  # an icon's name stands before it
    assert len(names) >= 11
    for name in names:
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_function("name => document.title.includes(name)", arg=name)
        walker.still()
        assert page.get_by_text("could not be drawn").count() == 0
        walker.look()
    walker.go("")
    populated.whole_run(store_at[1])
    page.get_by_role("link", name="run-1 drawn", exact=True).wait_for()
    walker.look()
    walker.leave()


def test_an_engineer_goes_from_a_run_to_its_fault_a_finding_and_a_comparison(
    browser: Any, served: Served, store_at: tuple[str, Store], tmp_path: Path
) -> None:
    store = store_at[1]
    store.add_account("eve", "engineer", PASSWORD, actor="test")
    for name in ("sound", "run-1"):
        populated.whole_run(store, name, count=60)
    place = diagnosed.folder_of(tmp_path)
    diagnosed.keep(place, diagnosed.said(findings=[diagnosed.TURNED]))
    walker = Walker(browser, served, "eve")
    page = walker.page
    page.get_by_role("link", name="diagnosis: run-1 drawn").click()
    page.get_by_role("button", name="Keep as a finding").click()
    page.get_by_role("link", name="Finding 1: open").wait_for()
    walker.look("light", "dark")
    page.get_by_role("link", name="Finding 1: open").click()
    page.get_by_role("button", name="Report to share").wait_for()
    walker.look("light", "dark")
    walker.go("samples?run=run-1&class=3")
    page.locator("canvas[data-drawn='6']").wait_for()
    walker.look("light", "dark")
    walker.go("compare?run=run-1&with=sound")
    page.get_by_text("Mean of A, mean of B").wait_for()
    walker.look("light", "dark")
    walker.go("?plot=run-1&plot=sound")
    page.locator("[data-testid='stVegaLiteChart'] svg").nth(2).wait_for()
    walker.look("light", "dark")
    walker.leave()


def test_two_annotators_differ_and_a_reviewer_decides(
    browser: Any, served: Served, store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    populated.whole_run(store, count=20)
    for name, role in (("ann", "annotator"), ("bob", "annotator"), ("rita", "reviewer")):
        store.add_account(name, role, PASSWORD, actor="test")  # type: ignore[arg-type]
    project = populated.add_project(store, overlap=2)
    for name, keys, theme in (("ann", "0123", "light"), ("bob", "0145", "dark")):
        annotator = Walker(browser, served, name, theme=theme, at=f"annotate?project={project}")
        annotator.page.locator(".desk:not([data-sample=''])").wait_for()
        for key in keys:
            annotator.page.keyboard.press(key)
        annotator.page.locator(".desk[data-unsent='0']").wait_for()
        annotator.page.get_by_text("4 labelled").wait_for()
        annotator.look()
        annotator.leave()
    assert len(store.disputed(project)) == 2
    reviewer = Walker(browser, served, "rita", at=f"review?project={project}")
    page = reviewer.page
    for key in "23":
        page.locator(".desk[data-painted]:not([data-sample=''])").wait_for()
        sample = page.locator(".desk").get_attribute("data-sample")
        page.locator(f".desk[data-painted='{sample}']").wait_for()
        page.keyboard.press(key)
        page.locator(f".desk:not([data-sample='{sample}'])").wait_for()
    page.locator(".desk[data-unsent='0']").wait_for()
    assert store.review_counts(project).decided == 2
    page.get_by_label("Show", exact=True).select_option("decided")
    page.get_by_text("2 samples").wait_for()
    reviewer.look("light", "dark")
    reviewer.go(f"results?project={project}")
    page.get_by_role("button", name="0, class 0: 1,").wait_for()
    reviewer.look("light", "dark")
    reviewer.leave()
