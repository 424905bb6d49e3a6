"""A released card as a person sees it on the run's page, and its own page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import populated
import pytest
from serving import Served, start_dashboard, stop_dashboard

import fedlens

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
SETTINGS = {"data.users": 40, "data.samples_per_user": 4, "privacy.delta": 1e-3}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> fedlens.CardReport:
    """A card of few users, so clear that nobody would be protected."""
    out = tmp_path_factory.mktemp("cards") / "march"
    return fedlens.card(out=out, settings=SETTINGS, epsilon=60.0, expect=["duplicates < 60%"])


@pytest.fixture
def served_run(card: fedlens.CardReport) -> Iterator[Served]:
    folder = Path(card.run_dir).parent
    populated.new_store(folder)[1].close()
    running = start_dashboard(str(folder / "store.db"), folder, workspace=folder)
    yield running
    stop_dashboard(running)


def _figures(page: Any, card: fedlens.CardReport) -> Any:
    """Every statistic has its figure."""
    figures = page.locator(".datacard figure")
    figures.first.wait_for()
    assert figures.count() == len(card.card.histograms)
    return page.get_by_role("img", name="histogram of classes")


def test_the_runs_page_shows_the_card(
    browser: Any, served_run: Served, card: fedlens.CardReport
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.request.get(served_run.link)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{served_run.address}/run")
    page.get_by_text("Data card", exact=True).wait_for()
    picture = _figures(page, card)
    assert picture.evaluate("e => e.decode().then(() => e.naturalWidth)") > 200
    assert picture.bounding_box()["width"] > 200
    page.get_by_text("duplicates < 60%", exact=True).wait_for()
    context.close()


def test_its_own_page_opens_without_anything_else(browser: Any, card: fedlens.CardReport) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text))
    page.goto((Path(card.run_dir) / "card.html").as_uri())
    picture = _figures(page, card)
    assert picture.locator("rect.bar").count() == picture.locator("line.err").count() == 10
    assert picture.locator("rect.bar").first.bounding_box()["height"] > 10
    assert not wrong
    context.close()
