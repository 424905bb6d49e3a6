"""A person names labels for samples that nobody labelled, and labels them, in Debian's Chromium."""

from __future__ import annotations

import populated
import pytest
from serving import Served

from fedlens.store import Store

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser


def test_from_unlabelled_samples_to_labels_by_names_that_a_person_typed(
    store_at: tuple[str, Store], served: Served, signed_in_page
) -> None:
    page, store = signed_in_page, store_at[1]
    populated.whole_run(store, labelled=False)
    page.goto(f"{served.address}/annotate")
    names = page.get_by_role("textbox", name="Names of the labels")
    names.fill("ring, star")
    names.press("Enter")
    page.wait_for_timeout(300)  # the page begins to be redrawn
    page.wait_for_selector("[data-testid='stApp'][data-test-script-state='notRunning']")
    page.get_by_role("button", name="Create project").click()
    page.locator("[data-label]").first.wait_for()
    page.locator(".desk:not([data-sample=''])").wait_for()
    (project,) = store.projects()
    assert [(one.name, one.kind) for one in project.labels] == [
        ("ring", "class"), ("star", "class"), ("unknown", "unknown"), ("artefact", "artefact"),
    ]  # fmt: skip
    keys = {one.name: one.key for one in project.labels}
    given = ["ring", "star", "artefact", "unknown"]
    for name in given:
        page.keyboard.press(keys[name])
    page.locator(".desk[data-unsent='0']").wait_for(timeout=15_000)
    by_id = {one.label_id: one.name for one in store.labels(project.project_id)}
    assert [by_id[one.label_id] for one in store.annotations(project.project_id)] == given
