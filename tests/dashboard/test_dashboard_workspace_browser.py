"""A folder of runs of several stores, in a real browser: found, compared, labelled, linked to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import populated
import pytest
from browser_setup import axe_script
from serving import Served, start_dashboard, stop_dashboard

from fedlens.store import Store, open_store

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
PASSWORD = "a long password"
STILL = "[data-testid='stApp'][data-test-script-state='notRunning']"


def add_store(folder: Path) -> Store:
    """A new store in a folder of its own."""
    folder.mkdir()
    return populated.new_store(folder)[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores, each with a run whose batches have the same numbers, beside an empty one."""
    root = tmp_path_factory.mktemp("workspace")
    populated.new_store(root)[1].close()
    for name in ("sound", "faulty"):
        with add_store(root / name) as store:
            populated.whole_run(store, name, count=60 if name == "sound" else 40)
    return root


@pytest.fixture(scope="module")
def workspace(folder: Path) -> Iterator[Served]:
    """The folder, served as `fedlens dashboard FOLDER` does."""
    running = start_dashboard(str(folder / "store.db"), folder, workspace=folder)
    yield running
    stop_dashboard(running)


@pytest.fixture
def visit(browser: Any, workspace: Served) -> Iterator[Any]:
    """A signed-in page that asks no other host for anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.request.get(workspace.link)
    page = context.new_page()
    hosts: set[str] = set()
    page.on("request", lambda one: hosts.add(one.url.split("/")[2].split(":")[0]))
    page.set_default_timeout(60_000)
    yield page
    context.close()
    assert hosts <= {"127.0.0.1", ""}


def opened(page: Any, served: Served, path: str = "") -> Any:
    """The page of a path, once it stands still."""
    page.goto(f"{served.address}/{path}")
    page.wait_for_selector("h1")
    page.wait_for_selector(STILL)
    return page


def test_runs_of_all_stores_are_listed_found_and_appear(
    visit: Any, workspace: Served, folder: Path
) -> None:
    page = opened(visit, workspace)
    page.wait_for_selector(".rows tbody tr")
    assert {"sound drawn", "faulty drawn"} <= set(page.locator("td.name a").all_inner_texts())
    page.get_by_label("Search runs").fill("faulty")
    page.wait_for_function("document.title.startsWith('Runs')")
    playwright.expect(page.locator(".rows tbody tr")).to_have_count(1)
    page.get_by_label("Search runs").fill("")
    with add_store(folder / "late") as store:
        populated.whole_run(store, "late")
    playwright.expect(page.locator("td.name a", has_text="late drawn")).to_be_visible(
        timeout=60_000
    )
    picture = page.locator("tr", has_text="late drawn").locator("img")
    playwright.expect(picture).to_have_js_property("complete", True)
    assert picture.evaluate("image => image.naturalWidth") > 0
    page.locator("td.name a", has_text="faulty drawn").click()
    page.wait_for_url("**/run?run=faulty")
    page.wait_for_function("document.title === 'faulty drawn · Run · fedlens'")


def test_a_view_is_saved_shown_to_all_and_deleted(visit: Any, workspace: Served) -> None:
    page = opened(visit, workspace)
    rows = page.locator(".rows tbody tr")
    rows.nth(1).wait_for()
    all_runs = rows.count()
    page.get_by_label("Search runs").fill("faulty")
    page.wait_for_url("**search=faulty")
    page.get_by_role("button", name="Users").click()
    page.wait_for_url("**sort=users")
    page.go_back()
    page.wait_for_url("**search=faulty")
    playwright.expect(rows).to_have_count(1)
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name of the view").fill("Only faulty")
    page.get_by_role("button", name="Save", exact=True).click()
    views = page.get_by_label("Saved views")
    playwright.expect(views).to_have_value("search=faulty")
    page.go_back()
    playwright.expect(rows).to_have_count(all_runs)
    page.get_by_label("Saved views").select_option(label="Only faulty")
    playwright.expect(rows).to_have_count(1)
    opened(page, workspace)  # a fresh visit of the page knows it still
    views.select_option(label="Only faulty")
    page.get_by_role("button", name="Delete view").click()
    playwright.expect(views).to_be_hidden()


def chart(page: Any, figure: str, *names: str) -> Any:
    """The plot of a figure with a line for each of these runs, and no other."""
    words = f"Line chart of {figure} against rounds, a line for each of {', '.join(names)}"
    return page.locator(f"[data-testid='stVegaLiteChart'][aria-label='{words}']")


def test_figures_of_ticked_runs_are_drawn_together(visit: Any, workspace: Served) -> None:
    page = opened(visit, workspace)
    faulty, sound = "faulty drawn · faulty", "sound drawn · sound"
    page.get_by_label("Plot faulty drawn").check()
    page.get_by_label("Plot sound drawn").check()
    page.wait_for_url("**plot=faulty&plot=sound")
    chart(page, "DP ε spent", sound, faulty).wait_for()
    chart(page, "BDP ε spent (sound)", sound, faulty).wait_for()
    page.get_by_role("combobox", name="Figures").fill("critic")
    page.get_by_role("option", name="critic_norm").click()
    chart(page, "critic norm", sound, faulty).wait_for()
    page.reload()  # the address holds the runs and the figures
    chart(page, "critic norm", sound, faulty).wait_for()
    page.get_by_label("Plot sound drawn").uncheck()
    chart(page, "DP ε spent", faulty).wait_for()
    chart(page, "critic norm", faulty).wait_for()


def test_runs_of_two_stores_are_compared_and_told_apart_blind(
    visit: Any, workspace: Served
) -> None:
    page = opened(visit, workspace, "compare?run=faulty&with=sound")
    page.get_by_text("Mean of A, mean of B").wait_for()
    assert page.get_by_text("the same batch").count() == 0
    begin = page.get_by_role("button", name="Begin the blind test")
    begin.click()
    trial = page.get_by_text("Trial 1 of 20")
    trial.wait_for()
    assert page.get_by_text("faulty drawn").count() == page.get_by_text("Mean of A").count() == 0
    page.wait_for_selector(STILL)
    for number in range(2, 21):
        page.get_by_role("button", name="These are the faulty ones").first.click()
        page.get_by_text(f"Trial {number} of 20").wait_for()
        page.wait_for_selector(STILL)  # a click while the page is redrawn is lost
    page.reload()  # in the middle: nothing is lost
    page.get_by_text("Trial 20 of 20").wait_for()
    page.get_by_role("button", name="These are the faulty ones").first.click()
    page.get_by_text("B was called the faulty one in").wait_for()


def test_labels_go_to_the_store_that_has_the_run(
    visit: Any, workspace: Served, folder: Path
) -> None:
    with open_store(folder / "sound" / "store.db") as store:
        project = populated.add_project(store, "sound", overlap=1)
        page = opened(visit, workspace, f"annotate?project={project}&run=sound")
        page.get_by_text("Synthetic samples of run sound drawn").wait_for()
        page.locator(".desk:not([data-sample=''])").wait_for()
        page.keyboard.press("3")
        page.locator(".desk[data-unsent='0']").wait_for()
        page.get_by_text("1 labelled").wait_for()
        assert len(store.answers(project)) == 1
        for path in ("review", "results"):  # reached from a run of another store
            page = opened(visit, workspace, f"{path}?run=faulty")
            page.get_by_role("link", name=store.project(project).name).click()
            page.wait_for_url(f"**/{path}?**run=sound**")
            page.get_by_text("Choose a project.").wait_for(state="detached")
    with open_store(folder / "store.db") as own:
        assert own.projects() == []


def test_a_link_outlives_sign_in_and_opens_for_an_annotator(
    browser: Any, workspace: Served, folder: Path
) -> None:
    with open_store(folder / "store.db") as store:
        store.add_account("ann", "annotator", PASSWORD, actor="test")
        store.add_account("vic", "viewer", PASSWORD, actor="test")
    for name, link, title in (
        ("vic", "samples?run=faulty&class=3", "faulty drawn · Samples · fedlens"),
        ("ann", "annotate?project=1&run=sound", "Annotate · fedlens"),
    ):
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{workspace.address}/{link}")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill("wrong at first")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
        assert page.get_by_label("Name").input_value() == name
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_function(f"document.title === {title!r}", timeout=60_000)
        assert page.get_by_text("Page not found").count() == 0
        assert page.url.endswith(link.partition("?")[2])
        page.goto(f"{workspace.address}/team")
        page.get_by_role("heading", name="No such page").wait_for()
        context.close()


def test_back_undoes_a_filter(visit: Any, workspace: Served) -> None:
    page = opened(visit, workspace, "samples?run=faulty")
    page.get_by_role("checkbox", name=re.compile("^7 ")).check()
    page.wait_for_url("**class=7**")
    page.wait_for_selector(STILL)
    page.go_back()
    page.wait_for_function("!location.search.includes('class=')")
    page.wait_for_selector(STILL)
    page.wait_for_timeout(500)  # a box that writes its value back would do so by now
    assert "class=" not in page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_serious_violation(browser: Any, workspace: Served, theme: str) -> None:
    script = axe_script()
    if script is None:
        pytest.skip("axe-core is not here: python tests/browser_setup.py fetches it where npm is")
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, color_scheme=theme)
    context.request.get(workspace.link)
    page = context.new_page()
    page.set_default_timeout(60_000)
    found = {}
    for name in ("", "run", "diagnosis", "findings", "samples", "compare", "annotate", "nosuch"):
        page.goto(f"{workspace.address}/{name}")
        page.wait_for_selector("h1")
        if name != "nosuch":
            page.wait_for_selector(STILL)
        page.evaluate(script)
        said = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        bad = [one for one in said["violations"] if one["impact"] in ("serious", "critical")]
        found |= {name: [(one["id"], one["nodes"][0]["html"]) for one in bad]} if bad else {}
    context.close()
    assert found == {}
