"""How long the dashboard's pages take over a store of a million samples and labels, 1,000 runs.

    python -m benchmarks.dashboard_pages --folder DIR --samples 1000000

Fills a store in DIR by bulk inserts where there is none yet (drawn pictures, no run behind them),
serves it, opens every page in Debian's Chromium and prints the seconds until nothing moves any
more and pictures are drawn: of a whole page load the first time, the median of five more, and the
median of five clicks on its name in the navigation. Beside them a page of Streamlit with a title
and nothing else, which is what no page load can be quicker than. At last what people do on a page,
by keys and clicks: milliseconds until the browser has painted what was asked for, the median of 20.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright
from sqlalchemy import Connection, insert, update

from fedlens.store import (
    BatchRecord,
    LabelRecord,
    LedgerRow,
    ProjectRecord,
    RoundRecord,
    RunRecord,
    SampleRecord,
    Store,
    open_store,
    upgrade,
)
from fedlens.store.engine import locate, make_engine
from fedlens.store.records import utc_now
from fedlens.store.schema import AnnotationTable, BatchTable, ProjectTable, SampleTable
from fedlens.store.schema_findings import SampleTagTable
from fedlens.store.schema_team import TaskTable

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic")
LINK = re.compile(r"(http://127\S+?\d)(?:/\?token=\S+|$)", re.MULTILINE)
AT_ONCE, CLASSES, DISTINCT = 20_000, 10, 500
ANNOTATORS, TAGGED_EVERY = 4, 50
RUN, OTHER = "run-large", "run-small"
MORE_RUNS, FEW = 998, 1000
SLOW_MS = 1_800_000
"""The first order of a million samples waits until all of them were compared."""
AGAIN = 5
PAUSE = 3.0
"""Seconds after the first page: the server loads its other pages meanwhile."""
SPENT: dict[str, Any] = {
    "dp_epsilon": 1.0,
    "delta_dp": 1e-5,
    "bdp_as_published": 0.1,
    "bdp_corrected": 0.3,
    "bdp_sound": 1.0,
    "delta_bdp": 1e-10,
}
PAGES = {
    "runs": "/",
    "run": f"/run?run={RUN}",
    "diagnosis": f"/diagnosis?run={RUN}",
    "findings": "/findings",
    "privacy": "/privacy",
    "samples, 1,000": f"/samples?run={OTHER}",
    "samples": f"/samples?run={RUN}",
    "samples, a class": f"/samples?run={RUN}&class=7",
    "samples, a label": f"/samples?run={RUN}&label=3",
    "samples, a tag": f"/samples?run={RUN}&tag=turned",
    "samples, last part": f"/samples?run={RUN}&part=49",
    "samples, close up": f"/samples?run={RUN}&sample=500000",
    "samples, oddest": f"/samples?run={RUN}&order=oddest",
    "samples, part 4 of it": f"/samples?run={RUN}&order=oddest&part=3",
    "samples, alike": f"/samples?run={RUN}&order=alike&like=500000",
    "samples, map": f"/samples?run={RUN}&map=1",
    "compare": f"/compare?run={RUN}",
    "annotate": "/annotate?project=1",
    "review": "/review?project=1",
    "results": "/results?project=1",
    "privatizers": "/privatizers",
    "team": "/team",
}
CLICKED = {"runs", "run", "diagnosis", "findings", "privacy", "samples, 1,000", "compare"}
CLICKED |= {"annotate", "review", "results", "team"}
"""Pages that the navigation's link leads to, once a run of few samples was looked at."""
READY = """([title, drawn]) => {
  const find = (root, what) => {
    const found = root.querySelector(what);
    if (found) return found;
    for (const one of root.querySelectorAll("*")) {
      const inside = one.shadowRoot && find(one.shadowRoot, what);
      if (inside) return inside;
    }
    return null;
  };
  const said = document.querySelector("h1");
  const still = "[data-testid='stApp'][data-test-script-state='notRunning']";
  return said && said.textContent.startsWith(title) && document.querySelector(still) &&
    (!drawn || find(document, "canvas[data-drawn], canvas.map[data-count]")) && true;
}"""
"""Asked for each frame: whether the page of this title is there as a whole."""

INSIDE = {
    "close-up": ("samples", "canvas[data-drawn]", "click", ".near canvas", "painted"),
    "next close-up": ("samples, close up", ".near", "ArrowLeft", ".near canvas", "painted"),
    "a class more": ("samples", "[data-field=class]", "tick", "canvas[data-drawn]", "count"),
    "a decision": ("review", ".desk[data-painted]", "0", ".desk", "painted"),
}
"""By what is done: on which page, to what, how, and which mark of what tells that it is there."""
TIMES, BETWEEN_MS = 20, 100
WITHIN = """async ([onto, how, told, mark, times, pause]) => {
  const among = (root, what) => [...root.querySelectorAll(what), ...[...root.querySelectorAll("*")]
    .flatMap((one) => (one.shadowRoot ? among(one.shadowRoot, what) : []))];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const took = [];
  for (let i = 0; i < times; i += 1) {
    const all = among(document, onto), one = all[how === "tick" ? i % all.length : 0];
    const box = one.getBoundingClientRect();
    const before = among(document, told)[0]?.dataset[mark];
    const began = performance.now();
    if (how === "tick") one.click();
    else if (how === "click") {
      const at = {clientX: box.left + 20 + 60 * (i % 6), clientY: box.top + 20};
      one.dispatchEvent(new MouseEvent("click", {...at, bubbles: true, composed: true}));
    } else {
      const key = new KeyboardEvent("keydown", {key: how, bubbles: true, composed: true});
      (how === "ArrowLeft" ? one : document).dispatchEvent(key);
    }
    for (;;) {
      await frame();
      const now = among(document, told)[0]?.dataset[mark];
      if (now !== undefined && now !== before) break;
      if (performance.now() - began > 10000) throw new Error(`nothing came of ${how}`);
    }
    await frame(); // what the first frame set is on the screen with the second
    took.push(performance.now() - began);
    await new Promise((done) => setTimeout(done, pause));
  }
  return took;
}"""


def main() -> None:
    """Fill, serve, open, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the store is or goes")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples and labels")
    parser.add_argument("--only", nargs="*", default=[], help="pages, by name")
    given = parser.parse_args()
    place = given.folder / "store.db"
    if not place.exists():
        began = time.monotonic()
        fill(place, given.samples)
        sys.stderr.write(f"filled in {time.monotonic() - began:.0f} s\n")
    chosen = {name: page for name, page in PAGES.items() if not given.only or name in given.only}
    found = measure(dashboard_of(place), chosen)
    if not given.only:
        bare = given.folder / "bare.py"
        bare.write_text("import streamlit\nstreamlit.title('bare')\n")
        found |= measure(streamlit_of(bare), {"Streamlit alone": "/"})
    sys.stdout.write(json.dumps({"load": os.getloadavg()[0], "seconds": found}) + "\n")


def fill(place: Path, count: int) -> None:
    """A run with one large batch, all of it labelled, and one with a small batch."""
    place.parent.mkdir(parents=True, exist_ok=True)
    upgrade(place)
    with open_store(place) as store:
        for i in range(MORE_RUNS):
            _run(store, f"run-{i:03}")
        batches = [_batch_of(store, name) for name in (RUN, OTHER)]
        labels = tuple(LabelRecord(key=str(c), name=f"class {c}") for c in range(CLASSES))
        project = store.create_project(ProjectRecord(name="all", run_id=RUN, labels=labels))
        users = [store.ensure_user(f"annotator {i}") for i in range(ANNOTATORS)]
    engine = make_engine(locate(place)).execution_options(write=True)
    pictures = _pictures()
    with engine.begin() as connection:
        _batch(connection, batches[0], count, pictures, 1)
        _batch(connection, batches[1], FEW, pictures, count + 1)
        _labels(connection, project, users, count)
    engine.dispose()


def _run(store: Store, name: str) -> None:
    """Store a run of one round."""
    store.create_run(
        RunRecord(
            run_id=name,
            name=name,
            status="finished",
            config={},
            config_sha256="0" * 64,
            data_name="drawn",
            unit="user",
            users=1000,
            nodes=1,
            rounds_planned=1,
            private=True,
            guarantee="A store to measure pages with.",
        )
    )
    event = {"unit": "user", "sampling_rate": 1.0, "noise_multiplier": 5.0, "clipping_norm": 1.0}
    paid: dict[str, Any] = {"run_id": name, "index": 0, "round": 1, "event": event | {"count": 1}}
    store.record_progress(
        ledger=[LedgerRow(**paid, purpose="warm-up", entry_hash="0" * 64)],
        rounds=[RoundRecord(run_id=name, round=1, metrics={}, dp_method="pld", **SPENT)],
    )


def _batch_of(store: Store, name: str) -> dict[str, Any]:
    """Store a run with a batch; its values."""
    _run(store, name)
    record = BatchRecord(
        run_id=name,
        round=1,
        ledger_index=0,
        purpose="curated",
        checkpoint_sha256="0" * 64,
        seed=0,
        count=0,
        private=True,
        provenance="SYNTHETIC",
        **SPENT,
    )
    number = store.add_batch(record, [])
    return {"batch_id": number}


def _pictures() -> list[SampleRecord]:
    random = np.random.default_rng(0)
    y, x = np.mgrid[-14:14, -14:14]
    made = []
    for i in range(DISTINCT):
        ring = np.exp(-((np.hypot(x, y) - random.uniform(5, 11)) ** 2) / 4)
        pixels = (255 * np.clip(ring + random.normal(0, 0.04, ring.shape), 0, 1)).astype(np.uint8)
        made.append(
            SampleRecord.from_pixels(position=i, requested_class=i % CLASSES, pixels=pixels[None])
        )
    return made


def _batch(
    connection: Connection, batch: dict[str, Any], count: int, made: list[SampleRecord], first: int
) -> None:
    number = batch["batch_id"]
    announced = update(BatchTable).where(BatchTable.batch_id == number).values(count=count)
    connection.execute(announced)
    rows = (
        {
            "sample_id": first + i,
            "batch_id": number,
            "position": i,
            "requested_class": made[i % DISTINCT].requested_class,
            "png": made[i % DISTINCT].png,
            "sha256": made[i % DISTINCT].sha256,
            "agreement": (i * 7919 % 1000) / 1000,
        }
        for i in range(count)
    )
    _insert(connection, SampleTable, rows)


def _labels(connection: Connection, project: int, users: list[int], count: int) -> None:
    """One answer to every sample, one in twenty of another class than was asked for."""
    now = utc_now()
    answers = (
        {
            "client_uuid": str(uuid.UUID(int=i + 1)),
            "project_id": project,
            "sample_id": i + 1,
            "user_id": users[i % ANNOTATORS],
            "label_id": _label(i),
            "lead_ms": 700,
            "created_at": now,
        }
        for i in range(count)
    )
    _insert(connection, AnnotationTable, answers)
    tasks = (
        {
            "project_id": project,
            "sample_id": i + 1,
            "need": 1,
            "answered": 1,
            "is_open": False,
            "lane": 1,
            "task_rank": i,
            "is_control": i % 10 == 0,
            "disputed": i % 1000 == 0,
            "requested_class": i % DISTINCT % CLASSES,
            "final_label_id": _label(i),
            "decided": False,
        }
        for i in range(count)
    )
    _insert(connection, TaskTable, tasks)
    tags = (
        {"sample_id": i + 1, "tag": "turned", "run_id": RUN, "author": "annotator 0"}
        for i in range(0, count, TAGGED_EVERY)
    )
    _insert(connection, SampleTagTable, tags)
    connection.execute(update(ProjectTable).values(queued_batch=1))


def _label(i: int) -> int:
    class_ = i % DISTINCT % CLASSES
    return 1 + (class_ + (i % 20 == 0)) % CLASSES


def _insert(connection: Connection, table: Any, rows: Iterator[dict[str, Any]]) -> None:
    while part := list(itertools.islice(rows, AT_ONCE)):
        connection.execute(insert(table), part)


def dashboard_of(place: Path) -> list[str]:
    """The command that serves a store."""
    command = [sys.executable, "-m", "fedlens.cli", "dashboard", "--store", str(place)]
    return [*command, "--port", "0"]


def streamlit_of(script: Path) -> list[str]:
    """The command that serves a script of Streamlit's without anything of ours."""
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.headless=true"]
    return [*command, "--server.address=127.0.0.1", "--browser.gatherUsageStats=false"]


def measure(command: list[str], pages: dict[str, str]) -> dict[str, tuple[float, ...]]:
    """Seconds until each page stands, by name: for a new visitor, once more, and by a click."""
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # Our own interpreter and modules; a path is a single argument.
    with subprocess.Popen(command, **said) as server:  # type: ignore[call-overload]  # noqa: S603
        try:
            found = next(filter(None, map(LINK.search, server.stdout or ())))
            with sync_playwright() as started:
                browser = started.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
                page = browser.new_page(viewport={"width": 1280, "height": 1000})
                page.set_default_timeout(SLOW_MS)
                page.goto(found[0])
                page.wait_for_function(READY, arg=["", False])
                time.sleep(PAUSE)
                seconds = {name: _opened(page, name, found[1] + at) for name, at in pages.items()}
                inside = {name: one for name, one in INSIDE.items() if one[0] in pages}
                seconds |= {name: _done(page, found[1], name, one) for name, one in inside.items()}
                browser.close()
        finally:
            server.kill()  # Streamlit by itself waits for the browser to go
    return seconds


def _opened(page: Page, name: str, address: str) -> tuple[float, ...]:
    first, *more = (_loaded(page, name, address) for _ in range(1 + AGAIN))
    found = [first, _median(more)]
    if name in CLICKED:
        found.append(_median([_clicked(page, name) for _ in range(AGAIN)]))
    said = zip(found, ("first", "again", "by a click"), strict=False)
    sys.stderr.write(f"{name:20} {', '.join(f'{each:6.2f} s {words}' for each, words in said)}\n")
    sys.stderr.flush()
    return tuple(found)


def _done(page: Page, address: str, name: str, how: tuple[str, ...]) -> tuple[float, ...]:
    """Seconds until the browser has painted what a key or a click asks for."""
    _loaded(page, how[0], address + PAGES[how[0]])
    page.wait_for_timeout(1000 * PAUSE)
    took = page.evaluate(WITHIN, [*how[1:], TIMES, BETWEEN_MS])
    said = statistics.median(took), max(took)
    sys.stderr.write(f"{name:20} {said[0]:5.0f} ms, {said[1]:5.0f} ms at most\n")
    return tuple(round(each / 1000, 3) for each in said)


def _median(seconds: list[float]) -> float:
    return round(statistics.median(seconds), 2)


def _loaded(page: Page, name: str, address: str) -> float:
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(READY, arg=["", _has_pictures(name)])
    return round(time.perf_counter() - began, 2)


def _clicked(page: Page, name: str) -> float:
    title = name.partition(",")[0].capitalize()
    aside = "Findings" if title == "Team" else "Team"
    page.get_by_role("link", name=aside, exact=True).first.click()
    page.wait_for_function(READY, arg=[aside, False])
    link = page.get_by_role("link", name=title, exact=True).first
    link.hover()
    began = time.perf_counter()
    link.click()
    page.wait_for_function(READY, arg=[title, _has_pictures(name)])
    return round(time.perf_counter() - began, 2)


def _has_pictures(name: str) -> bool:
    return name.startswith(("samples", "compare"))


if __name__ == "__main__":
    main()
