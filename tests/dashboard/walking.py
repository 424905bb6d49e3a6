"""Somebody who walks through the dashboard in a browser of their own; what goes wrong is kept."""

from __future__ import annotations

from typing import Any

from browser_setup import axe_script
from serving import Served

PASSWORD = "a long password"
STILL = "[data-testid='stApp'][data-test-script-state='notRunning']"


class Walker:
    """One person with their account, or the owner by the printed link.

    Errors of scripts and of the console, requests to other hosts, and what axe-core calls serious
    or critical at a `look` fail when they `leave`.
    """

    def __init__(
        self, browser: Any, served: Served, name: str = "", *, theme: str = "light", at: str = ""
    ) -> None:
        self.served, self.wrong, self.hosts = served, list[str](), set[str]()
        size = {"width": 1280, "height": 1000}
        self.context = browser.new_context(viewport=size, color_scheme=theme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda one: self.hosts.add(one.url.split("/")[2].split(":")[0]))
        if name:
            self.page.goto(f"{served.address}/{at}")
            self.page.get_by_label("Name").fill(name)
            self.page.get_by_label("Password").fill(PASSWORD)
            self.page.get_by_role("button", name="Sign in").click()
        else:
            self.page.goto(served.link)
        self.still()
        self.page.on("console", self._hear)  # a page without a session is a 401 of our own

    def _hear(self, message: Any) -> None:
        # Streamlit guesses where its own pages lie, and asks at a wrong place first.
        if message.type == "error" and "_stcore" not in message.location.get("url", ""):
            self.wrong.append(message.text)

    def go(self, path: str) -> Any:
        """The page of a path, once it stands still."""
        self.page.goto(f"{self.served.address}/{path}")
        return self.still()

    def still(self) -> Any:
        """The page, once it stands still."""
        self.page.wait_for_selector("h1")
        self.page.wait_for_selector(STILL)
        return self.page

    def look(self, *themes: str) -> None:
        """Have axe-core look at the page as it is, in its theme or in these."""
        script = axe_script()
        if script is None:  # python tests/browser_setup.py fetches it where npm is
            return
        for theme in themes or (None,):
            if theme is not None:
                self.page.emulate_media(color_scheme=theme)
            self.page.evaluate(script)
            said = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            bad = [one for one in said["violations"] if one["impact"] in ("serious", "critical")]
            self.wrong += [f"{self.page.url}: {one['id']} {one['nodes'][0]['html']}" for one in bad]

    def leave(self) -> None:
        """Close the browser's window; nothing may have gone wrong."""
        self.context.close()
        assert self.wrong == [], self.wrong
        assert self.hosts <= {"127.0.0.1", ""}
