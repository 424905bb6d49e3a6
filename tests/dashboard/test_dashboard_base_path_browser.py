"""The dashboard under a path of a reverse proxy, in a real browser: everything stays below it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import populated
import pytest
from reverse_proxy import (
    NGINX,
    Rewrite,
    keep_host,
    nginx_proxy,
    reverse_proxy,
    rewrite_host,
    rewrite_host_and_origin,
)
from serving import TOKEN, Served

from fedlens.store import Store

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
Proxy = Callable[[int], AbstractContextManager[str]]
STILL = "[data-testid='stApp'][data-test-script-state='notRunning']"


def nginx(port: int) -> AbstractContextManager[str]:
    if NGINX is None:
        pytest.skip("nginx is not installed")
    return nginx_proxy(port)


def small(prefix: str, rewrite: Rewrite) -> Proxy:
    return partial(reverse_proxy, prefix=prefix, rewrite=rewrite)


@pytest.mark.parametrize(
    "proxy",
    [
        nginx,
        small("/fedlens", keep_host),
        small("/user/ada/proxy/8501", rewrite_host),
        small("", rewrite_host_and_origin),
    ],
    ids=[
        "nginx itself under a path",
        "as nginx under a path",
        "as Jupyter under a path, another Host",
        "as Codespaces",
    ],
)
def test_pages_pictures_labels_and_sign_in_work_behind_a_proxy(
    browser: Any, served: Served, store_at: tuple[str, Store], proxy: Proxy
) -> None:
    store = store_at[1]
    populated.whole_run(store)
    project = populated.add_project(store, overlap=1)
    wrong: list[str] = []
    with proxy(served.port) as outside:
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfinished", lambda one: wrong.extend(_amiss(one, outside)))
        page.goto(f"{outside}/samples?run=run-1&class=3")
        page.wait_for_url(f"{outside}/login?then=**")
        page.get_by_label("Access token").fill(TOKEN)
        page.get_by_role("button", name="Open the dashboard").click()
        page.wait_for_url(f"{outside}/samples?run=run-1&class=3**")
        page.locator("canvas[data-drawn]").first.wait_for()
        page.get_by_role("link", name="Runs", exact=True).click()
        page.wait_for_url(re.compile(re.escape(f"{outside}/") + r"(\?.*)?$"))
        thumbnail = page.locator(".rows td img")
        playwright.expect(thumbnail).to_have_js_property("complete", True)
        assert thumbnail.evaluate("image => image.naturalWidth") > 0
        page.get_by_role("link", name="run-1 drawn", exact=True).click()
        page.wait_for_url(f"{outside}/run?run=run-1")
        picture = page.locator("img[src*='/media/']").first
        # who leaves before has Streamlit drop the picture that is on its way
        playwright.expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("image => image.naturalWidth") > 0
        page.go_back()
        page.locator(".rows tbody tr").wait_for()
        page.goto(f"{outside}/annotate?project={project}")
        page.locator(".desk:not([data-sample=''])").wait_for()
        page.keyboard.press("3")
        page.locator(".desk[data-unsent='0']").wait_for()
        page.get_by_text("1 labelled").wait_for()
        assert len(store.answers(project)) == 1
        page.wait_for_selector(STILL)
        page.get_by_role("link", name="Sign out").click()
        page.wait_for_url(f"{outside}/login")
        context.close()
    assert wrong == []


def _amiss(request: Any, outside: str) -> list[str]:
    """What is wrong with a request: it left the proxy's path, or nobody answered it."""
    status = request.response().status if request.response() else 0
    local = request.url.startswith((f"{outside}/", "data:", "blob:"))
    return [] if local and status < 400 else [f"{status} {request.url}"]
