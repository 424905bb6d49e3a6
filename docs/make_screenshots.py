"""Take the pictures of the dashboard that the README shows, from a real store.

    python docs/make_screenshots.py --store runs/demo/store.db --out docs/images

Serves the store, opens each page in Debian's Chromium and writes one PNG a page. It changes
nothing in the store; a diagnosis that the run has not got yet is made beside it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from fedlens.dashboard.samples.batches import rank_batches
from fedlens.store import SampleFilter, open_store

CHROMIUM = "/usr/bin/chromium"
SERVE = "import sys; from fedlens.dashboard.serve import serve; serve(sys.argv[1], port=0)"
LINK = re.compile(r"(http://\S+)/\?token=\S+")
WIDTH, TALLEST, SETTLE_MS = 1280, 1500, 2500
DIAGNOSED_MS = 30 * 60_000
"""A diagnosis that no one has asked for yet is waited for so long."""
FRAME = "[data-testid='stMainBlockContainer']"


def main() -> None:
    """Read the arguments and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True, help="path or URL of the store")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder for the PNGs")
    parser.add_argument("--run", help="id of the run to show; default: the newest")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", SERVE, arguments.store]
    # This interpreter with a fixed script; the store's name is one argument to it.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            _take(_link(server), _pages(arguments.store, arguments.run), arguments.out)
        finally:
            server.terminate()


def _link(server: subprocess.Popen[str]) -> re.Match[str]:
    said = []
    for line in server.stderr or ():
        found = LINK.search(line)
        if found:
            return found
        said.append(line)
    raise SystemExit("the dashboard did not start:\n" + "".join(said))


def _pages(store_url: str, run_id: str | None) -> dict[str, str]:
    """Name of each picture and the address it shows."""
    with open_store(store_url) as store:
        runs = store.runs()
        if not runs:
            raise SystemExit("the store has no runs: make one with `fedlens simulate`")
        run = store.run(run_id) if run_id else runs[0]
        batches = rank_batches(store.batches(run.run_id))
        wanted = SampleFilter(batch_id=batches[0].batch_id if batches else -1)
        first = store.samples(wanted, limit=1)
        alone = len(runs) == 1 and len(batches) > 1
    picked = f"&sample={first[0].sample_id}" if first else ""
    # One run alone is compared with itself: its faithful batch with its curated one.
    other = f"&batch2={batches[1].batch_id}" if alone else ""
    return {
        "runs": "/",
        "run": f"/run?run={run.run_id}",
        "diagnosis": f"/diagnosis?run={run.run_id}",
        "samples": f"/samples?run={run.run_id}{picked}",
        "compare": f"/compare?run={run.run_id}{other}",
        "annotate": "/annotate",
    }


def _take(link: re.Match[str], pages: dict[str, str], out: Path) -> None:
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(link[0])
        for name, path in pages.items():
            page.goto(link[1] + path)
            _fit(page)
            page.screenshot(path=out / f"dashboard-{name}.png")
        browser.close()


def _fit(page: Page) -> None:
    """Wait until the page stands still, and make the window as high as it."""
    page.get_by_text("Every image here is synthetic").wait_for(timeout=60_000)
    under_way = page.get_by_text("Trying every fault of the library")
    under_way.wait_for(state="detached", timeout=DIAGNOSED_MS)
    page.wait_for_timeout(SETTLE_MS)
    height = page.locator(FRAME).evaluate("frame => frame.scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": min(TALLEST, height + 20)})
    page.wait_for_timeout(SETTLE_MS)


if __name__ == "__main__":
    main()
