"""From a folder of pictures that nobody labelled to a student of named samples, as the page says.

The page is docs/how-to/data-without-labels.md. What a person does is done in Debian's Chromium; a
rule that looks at the picture on the screen stands in for their eye.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving import start_dashboard, stop_dashboard

from fedlens.api.runs import open_run
from fedlens.cli import main
from fedlens.data.embedded import load_embedded
from fedlens.models.label_models import read_label_model

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
SIDE, EACH, ANSWERS = 16, 4, 60
UNSURE = 12.0
SMALL = {
    "data.scheme": "column",
    "data.users": 150,
    "data.nodes": 1,
    "generator.width": 12,
    "generator.batch": 60,
    "tasks.warmup.generator_steps": 50,
    "tasks.critic.generator_steps": 50,
    "tasks.critic.components": 60,
    "release.samples": 120,
}
SECOND = {
    **SMALL,
    "tasks.critic.faithful_steps": 5,
    "tasks.annotator.features": "orientations",
    "tasks.annotator.components": 40,
    "tasks.annotator.rounds": 4,
    "tasks.annotator.guided_steps": 20,
}
"""As many people as make samples that can be read, at an ε that protects nobody much."""


def simulate(out: Path, labels: str, pictures: Path, settings: dict[str, object]) -> None:
    chosen = {**settings, "data.labels": labels, "data.name": f"pictures:{pictures}"}
    flags = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    guarantee = ["--epsilon", "60" if labels == "none" else "120", "--delta", "1e-3"]
    asked = ["simulate", "--preset", "auto", *flags, *guarantee, "--no-student"]
    assert main([*asked, "--out", str(out)]) == 0


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder for each of 190 people, with four pictures: zeros and ones, which nothing says."""
    digits, top = load_embedded(), tmp_path / "my-pictures"
    shown = [np.flatnonzero(digits.train_labels == label)[:380] for label in (0, 1)]
    order = np.random.default_rng(0).permutation(np.concatenate(shown))
    for place, row in enumerate(order):
        path = top / f"person{place // EACH}" / f"{place % EACH}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.train_images[row, 0]).resize((SIDE, SIDE)).save(path)
    return top


def ringness(images: np.ndarray) -> np.ndarray:
    """How much darker the middle of each picture [n, 16, 16] is than what lies left and right."""
    beside = np.concatenate([images[:, 4:12, 3:6], images[:, 4:12, 10:13]], 2).mean((1, 2))
    return beside - images[:, 6:10, 7:9].mean((1, 2))


def picture_on(page) -> np.ndarray:
    """The picture that a person sees, [1, 16, 16]."""
    source = page.locator(".desk .sample").get_attribute("src")
    picture = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))
    return np.asarray(picture.convert("L"), np.float64)[None]


def create_project(page) -> None:
    """The form of the page Annotate, as a person fills it in."""
    for field, text in (("Names of the labels", "ring, bar"), ("Name", "shapes")):
        box = page.get_by_role("textbox", name=field, exact=True)
        box.fill(text)
        box.press("Tab")
        page.wait_for_timeout(300)  # the page begins to be redrawn
        page.wait_for_selector("[data-testid='stApp'][data-test-script-state='notRunning']")
    page.get_by_role("button", name="Create project").click()
    page.locator("[data-label]").first.wait_for()


def label_by_keys(page) -> list[str]:
    """A person's answers, a key each."""
    desk = page.locator(".desk:not([data-sample=''])")
    desk.wait_for()
    key = {
        name: page.locator("[data-label]", has_text=name).locator("kbd").inner_text().lower()
        for name in ("ring", "bar", "artefact")
    }
    said = []
    for _ in range(ANSWERS):
        how = float(ringness(picture_on(page))[0])
        said.append("artefact" if abs(how) < UNSURE else "ring" if how > 0 else "bar")
        page.keyboard.press(key[said[-1]])
    page.locator(".desk[data-unsent='0']").wait_for(timeout=15_000)
    return said


@pytest.fixture
def tab(browser) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    yield context.new_page()
    context.close()


def name_by_hand(tab, run: Path, folder: Path) -> list[str]:
    """`fedlens dashboard RUN`, and what a person does there."""
    served = start_dashboard(open_run(run).store, folder)
    try:
        tab.context.request.get(served.link)
        tab.goto(f"{served.address}/annotate")
        create_project(tab)
        return label_by_keys(tab)
    finally:
        stop_dashboard(served)


def share_right(model: Path) -> float:
    """Of real zeros and ones that no user has, how many the label model names rightly."""
    digits, named = load_embedded(), read_label_model(model)
    assert named.class_names == ("ring", "bar")
    kept = digits.test_labels < 2
    pixels = [
        np.asarray(Image.fromarray(image).resize((SIDE, SIDE)))
        for image in digits.test_images[kept, 0]
    ]
    found, _ = named.name(np.stack(pixels)[:, None])
    return float((found == digits.test_labels[kept]).mean())


def test_a_folder_of_unlabelled_pictures_becomes_a_student(
    pictures: Path, tmp_path: Path, tab, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "unlabelled", tmp_path / "named"
    simulate(first, "none", pictures, SMALL)
    said = name_by_hand(tab, first, tmp_path)
    assert min(said.count("ring"), said.count("bar")) >= 10
    model = tmp_path / "shapes.npz"
    asked = ["student", str(first), "--project", "shapes", "--curve", "--out", str(model)]
    assert main([*asked, "--epochs", "1"]) == 0
    assert share_right(model) > 0.8
    simulate(second, f"model:{model}", pictures, SECOND)
    assert f"samples of run {open_run(first).id}" in open_run(second).statement()
    capsys.readouterr()
    final = tmp_path / "final.npz"
    asked = ["student", str(second), "--labels", "annotator", "--images", "2000", "--epochs", "2"]
    assert main([*asked, "--out", str(final), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not told["simulation_only"]  # nobody has labelled a real picture to test it on
    assert share_right(final) > 0.85
