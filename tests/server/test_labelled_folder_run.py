"""A run with a filter over people's own labelled folder, from pictures to stored samples."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from run_tasks import TINY

from fedlens.api import privatizer
from fedlens.cli import main
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process
from fedlens.store import SampleFilter, open_store

pytestmark = pytest.mark.usefixtures("a_filter_in_no_time")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "own"
    root.mkdir()
    source = np.random.default_rng(0)
    rows = []
    for one in range(200):
        Image.fromarray(source.integers(0, 255, (40, 40), dtype=np.uint8)).save(root / f"{one}.png")
        rows.append([f"{one}.png", ("cat", "dog", "cow")[one % 3], "ab"[one // 3 % 2], one // 4])
    with (root / "manifest.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["file", "kind", "house", "who"], *rows])
    return root


def test_a_run_hides_the_column_of_a_labelled_folder(folder: Path, tmp_path: Path) -> None:
    name = f"folder:{folder},utility=kind,sensitive=house,owner=who,side=28"
    changes = {
        "data.name": name,
        "data.scheme": "column",
        "data.samples_per_user": 0,
        "privatizer.sensitive_attribute": "column",
        "privatizer.network": "code",
    }
    config = Config().updated({**TINY, **changes})
    directory = RunDirectory.create(tmp_path / "run", config)
    outcome = train_in_process(config, directory, directory.default_store, None)
    with open_store(directory.default_store) as store:
        stored = store.samples(SampleFilter(run_id=outcome.run_id, purpose="curated"))
        assert store.run(outcome.run_id).class_names == ()  # a label may be one person's alone
    assert {sample.requested_class for sample in stored} == {0, 1, 2}
    loaded = privatizer.load(directory.path)
    assert loaded.shape == (1, 28, 28)
    released = tmp_path / "released"
    assert main(["privatizer", "apply", str(directory.path), str(folder), str(released)]) == 0
    with Image.open(released / "7.png") as picture:
        assert picture.size == (28, 28)
