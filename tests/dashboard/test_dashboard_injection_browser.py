"""Markup in names, notes and labels on every page, in Chromium: shown, never obeyed."""

from __future__ import annotations

from typing import Any

import populated
import pytest
from serving import Served

from fedlens.store import Annotation, LabelRecord, Store

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
RUN = "</script></title><img src=x onerror=window.hit=1> [go](https://evil.example/a) run"
BOLD = "<svg onload=window.hit=2> ![p](https://evil.example/b.png) :red[x] $x$"
SHOWN = ("onerror=window.hit=1", "onload=window.hit=2")
PAGES = (
    "runs",
    "run",
    "diagnosis",
    "findings",
    "samples",
    "compare",
    "annotate",
    "review",
    "results",
    "team",
)


def said_by_people(store: Store) -> int:
    populated.whole_run(store, name=RUN, data_name=BOLD, class_names=(BOLD, RUN))
    project = populated.add_project(
        store,
        name=BOLD,
        instructions=RUN,
        labels=(LabelRecord(key="a", name=BOLD), LabelRecord(key="b", name=RUN)),
        overlap=2,
    )
    labels = [one.label_id for one in store.labels(project)]
    for number, name in enumerate((RUN, BOLD)):
        user = store.ensure_user(f"{name} (imported)")
        for sample in store.queue(project, user, 2):
            store.annotate(
                Annotation(
                    client_uuid=f"{number}-{sample.sample_id}",
                    project_id=project,
                    sample_id=sample.sample_id,
                    user_id=user,
                    label_id=labels[number],
                    note=BOLD,
                )
            )
    store.log(RUN, BOLD, RUN)
    return project


@pytest.mark.law("labels: imports and exports are whole and safe")
def test_markup_of_people_is_shown_on_every_page_and_never_obeyed(
    store_at: tuple[str, Store], served: Served, signed_in_page: Any
) -> None:
    project = said_by_people(store_at[1])
    asked: list[str] = []
    signed_in_page.on("request", lambda request: asked.append(request.url))
    texts = []
    for page in PAGES:
        address = f"{served.address}/{page}?project={project}&run={BOLD.replace(' ', '%20')}"
        signed_in_page.goto(address)
        signed_in_page.get_by_role("heading", level=1).wait_for()
        signed_in_page.wait_for_timeout(1500)
        assert signed_in_page.evaluate("window.hit") is None, page
        links = signed_in_page.locator("a[href*='evil.example'], img[src*='evil.example']")
        found = links.evaluate_all("all => all.map((one) => one.parentElement.outerHTML)")
        assert not found, page
        assert signed_in_page.locator("img[src='x'], svg[onload]").count() == 0, page
        texts.append(signed_in_page.locator("body").inner_text())
    assert all(any(part in text for text in texts) for part in SHOWN)
    assert not [url for url in asked if "evil" in url.partition("?")[0]]
    assert {url.split("/")[2] for url in asked if url.startswith("http")} == {
        f"127.0.0.1:{served.port}"
    }
